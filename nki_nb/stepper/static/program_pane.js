// @ts-check
/** The program: one row for each instruction, loops folded. Only the rows in sight are in the page. */

import { element, pane } from "./dom.js";
import { engine } from "./engines.js";
import { Rows } from "./folding.js";
import { plural } from "./numbers.js";

/** @typedef {import("./viewer.js").Viewer} Viewer */

const ROW = 21;
const TALLEST = 8_000_000;
const EXTRA = 6;
const BLOCK = 64;

/** @param {Viewer} viewer */
export function programPane(viewer) {
  const { overview, store } = viewer;
  const { root, note, body } = pane("program", "Program");
  note.textContent = plural(overview.steps, "instruction");
  const rows = new Rows(overview.steps, overview.folds);
  const texts = new Texts(viewer, () => draw());
  const space = element("div", { class: "space", role: "list" });
  body.append(space);
  if (overview.failure) root.append(refusal(overview));
  body.tabIndex = -1;
  body.addEventListener("scroll", () => draw());

  /** Of a list taller than browsers allow, the scroll bar moves over rows instead of pixels. */
  function firstRow() {
    const tall = rows.count * ROW;
    if (tall <= TALLEST) return Math.floor(body.scrollTop / ROW);
    return Math.floor((body.scrollTop / Math.max(1, TALLEST - body.clientHeight)) * Math.max(0, rows.count - body.clientHeight / ROW));
  }

  function draw() {
    const tall = rows.count * ROW;
    space.style.height = `${Math.min(tall, TALLEST)}px`;
    const inSight = Math.ceil(body.clientHeight / ROW) + 1;
    const start = Math.max(0, firstRow() - EXTRA);
    const stop = Math.min(rows.count, firstRow() + inSight + EXTRA);
    const made = [];
    for (let i = start; i < stop; i++) made.push(row(rows.at(i), tall <= TALLEST ? i * ROW : body.scrollTop + (i - firstRow()) * ROW));
    space.replaceChildren(...made);
  }

  /** @param {import("./folding.js").StepRow | import("./folding.js").FoldRow} what @param {number} top */
  function row(what, top) {
    const made = what.kind === "fold" ? foldRow(what) : stepRow(what);
    made.style.transform = `translateY(${top}px)`;
    return made;
  }

  /** @param {import("./folding.js").StepRow} what */
  function stepRow({ step, depth }) {
    const plan = overview.planOf(step);
    const { name, fill, ink } = engine(plan.engine);
    const now = step === viewer.state.step;
    const several = overview.cores.length > 1;
    const other = viewer.state.core !== null && plan.core !== viewer.state.core;
    const faulty = overview.faults(step).length > 0;
    const made = element("div", {
      class: `row${now ? " now" : ""}${faulty ? " fault" : ""}${other ? " other" : ""}${depth ? " inner" : ""}`,
      role: "listitem", "data-step": step, "aria-current": now ? "step" : null, click: () => viewer.go(step),
    },
    element("span", { class: "number" }, String(step)),
    ...(several ? [element("span", { class: "core", title: overview.cores[plan.core] }, String(plan.core))] : []),
    element("span", { class: "badge", style: `background:${fill};color:${ink}` }, name),
    element("b", {}, plan.instruction),
    element("span", { class: "what" }, texts.of(step)));
    return made;
  }

  /** @param {import("./folding.js").FoldRow} what */
  function foldRow({ start, length, times, open }) {
    const { step } = viewer.state;
    const inside = start <= step && step < start + length * times;
    const round = inside ? `round ${Math.floor((step - start) / length) + 1} of ${times}` : plural(length * times, "instruction");
    const toggle = () => {
      rows.toggle(start);
      if (inside) follow(step);
      else draw();
    };
    return element("div", { class: `row fold${inside ? " inside" : ""}`, role: "listitem", "data-fold": start },
      element("button", { type: "button", class: "toggle", "aria-expanded": open, click: toggle,
        title: open ? "Show one round of this loop" : "Show all rounds of this loop" }, `${open ? "▾" : "▸"} ×${times}`),
      element("span", { class: "what" }, `${loopWords(overview, start, length)} · ${round}`));
  }

  /** @param {number} step */
  function follow(step) {
    rows.follow(step);
    space.style.height = `${Math.min(rows.count * ROW, TALLEST)}px`;
    const at = rows.rowOf(step);
    const inSight = Math.floor(body.clientHeight / ROW);
    const first = firstRow();
    if (at < first + 1 || at > first + inSight - 3) {
      const wanted = Math.max(0, at - Math.floor(inSight / 2));
      const tall = rows.count * ROW;
      body.scrollTop = tall <= TALLEST ? wanted * ROW : (wanted / Math.max(1, rows.count - inSight)) * (TALLEST - body.clientHeight);
    }
    draw();
  }

  new ResizeObserver(() => draw()).observe(body);
  store.subscribe((state, changed) => {
    if (changed.has("step")) follow(state.step);
    else if (changed.has("core")) draw();
  });
  return root;
}

/** The instruction that was not executed. @param {import("./overview.js").Overview} overview */
function refusal({ failure, steps }) {
  const place = failure.line ? ` (line ${failure.line})` : "";
  return element("p", { class: "refused" }, element("span", { class: "number" }, String(steps)), `✕ ${failure.instruction || "kernel"}: ${failure.message}${place}`);
}

/**
 * The instructions of one round of a loop, in a few words.
 * @param {import("./overview.js").Overview} overview
 * @param {number} start
 * @param {number} length
 */
export function loopWords(overview, start, length) {
  const names = new Set();
  for (let i = 0; i < length; i++) names.add(overview.planOf(start + i).instruction);
  const few = [...names].slice(0, 3).join(", ");
  return `${few}${names.size > 3 ? ", …" : ""}`;
}

/** What the steps in sight do, in words: asked for a block at a time. */
class Texts {
  /**
   * @param {Viewer} viewer
   * @param {() => void} arrived
   */
  constructor(viewer, arrived) {
    this.viewer = viewer;
    this.arrived = arrived;
    /** @type {Map<number, string[]>} */
    this.blocks = new Map();
  }

  /** @param {number} step */
  of(step) {
    const block = Math.floor(step / BLOCK);
    const known = this.blocks.get(block);
    if (known) return known[step % BLOCK] ?? this.viewer.overview.words(step);
    this.blocks.set(block, []);
    const start = block * BLOCK;
    this.viewer.source.ask({ kind: "texts", start, stop: start + BLOCK }).then((texts) => {
      this.blocks.set(block, texts);
      this.arrived();
    }, (error) => this.viewer.explain(error));
    return this.viewer.overview.words(step);
  }
}
