// @ts-check
/** A matmul: stationary, moving, the PSUM bank before and after, and how one element's sum comes about. */

import { magnitude } from "./colours.js";
import { element } from "./dom.js";
import { heatmap } from "./heatmap.js";
import { formatBits, formatValue } from "./numbers.js";
import { movePictures } from "./moves_view.js";
import { operandNamed, valuesOf } from "./operands.js";

/** @typedef {import("./viewer.js").Viewer} Viewer */
/** @typedef {import("./packing.js").Matrix} Matrix */

const MOST_BARS = 16;

/** @param {Viewer} viewer @param {any} detail @returns {Promise<Node[]>} */
export async function matmulView(viewer, detail) {
  const [dst, stationary, moving] = ["dst", "stationary", "moving"].map((name) => operandNamed(detail, name));
  const [weights, data, before, after] = await Promise.all([
    valuesOf(viewer, detail, stationary), valuesOf(viewer, detail, moving),
    valuesOf(viewer, detail, dst), valuesOf(viewer, detail, dst, true),
  ]);
  if (!after) return [];
  const chosen = chosenElement(viewer, after);
  const sum = element("div", { class: "sum" });
  const choose = (/** @type {number} */ row, /** @type {number} */ column) => {
    viewer.store.set({ element: [row, column] });
    explain(viewer, detail, after, [row, column], sum);
  };
  explain(viewer, detail, after, chosen, sum);
  const scale = magnitude(after.values);
  const unwritten = !viewer.overview.written(detail.index, dst.allocation);
  const bank = Math.floor(placed(viewer, dst) / viewer.overview.memory.bank_bytes);
  return [
    ...movePictures(detail),
    element("div", { class: "figures operands" },
      heatmap({ label: stationary.label, caption: "stationary [K, M]", matrix: weights, kind: "read" }),
      heatmap({ label: moving.label, caption: "moving [K, N]", matrix: data, kind: "read" })),
    element("div", {},
      element("h4", {}, `PSUM bank ${bank}`, element("span", { class: "note" }, groupWords(detail))),
      element("div", { class: "figures pair" },
        heatmap({ label: dst.label, caption: detail.matmul.mode === "overwrite" ? "before: will be overwritten" : "before", matrix: before, scale, unwritten, chosen, choose }),
        heatmap({ label: dst.label, caption: "after", matrix: after, before: unwritten ? null : before, scale, kind: "write", chosen, choose }))),
    sum,
  ];
}

/** @param {Viewer} viewer @param {any} operand */
function placed(viewer, operand) {
  return viewer.overview.allocations[operand.allocation].placed;
}

/** The element chosen before where the matrix has it, else the middle one. @param {Viewer} viewer @param {Matrix} matrix @returns {[number, number]} */
function chosenElement(viewer, matrix) {
  const [row, column] = viewer.state.element ?? [-1, -1];
  if (row >= 0 && row < matrix.shownRows && column < matrix.shownColumns) return [row, column];
  return [matrix.shownRows >> 1, matrix.shownColumns >> 1];
}

/** @param {any} detail */
function groupWords(detail) {
  const { group, position, evicted, mode } = detail.matmul;
  const place = group.length === 1 ? "a sum of one" : `${position + 1} of ${group.length} in this sum`;
  const read = evicted === null ? "never read" : `read at step ${evicted}`;
  return `${mode === "overwrite" ? "overwrites" : "adds"} · ${place} · ${read}`;
}

/**
 * The contributions to one element: a bar for each matmul of the sum.
 * @param {Viewer} viewer
 * @param {any} detail
 * @param {Matrix} after
 * @param {[number, number]} chosen
 * @param {HTMLElement} place
 */
async function explain(viewer, detail, after, [row, column], place) {
  const head = element("h4", {}, `element [${row}, ${column}]`, element("span", { class: "note" }, "click, or arrow keys, to choose another"));
  try {
    const answer = await viewer.ask({ kind: "contributions", step: detail.index, row, column });
    const at = row * after.shownColumns + column;
    const total = element("p", { class: "total" }, element("span", {}, "sum so far"), element("b", {}, formatValue(after.values[at], after.dtype)),
      element("code", {}, formatBits(after.bits[at], after.width)));
    place.replaceChildren(head, bars(viewer, detail, answer), total);
  } catch (error) {
    const { name, message } = /** @type {Error} */ (error);
    if (name !== "AbortError") place.replaceChildren(head, element("p", { class: "empty" }, message));
  }
}

/** @param {Viewer} viewer @param {any} detail @param {{ steps: number[], overwrite: boolean[], added: number[] }} answer */
function bars(viewer, detail, { steps, overwrite, added }) {
  const most = Math.max(...added.map((n) => (Number.isFinite(n) ? Math.abs(n) : 0)), 1e-30);
  const { position } = detail.matmul;
  const first = Math.max(0, Math.min(position - MOST_BARS / 2, steps.length - MOST_BARS));
  /** @type {HTMLElement[]} */
  const made = steps.slice(first, first + MOST_BARS).map((step, i) => {
    const k = first + i;
    const when = k === position ? "this step" : k > position ? "to come" : overwrite[k] ? "overwrote" : "added";
    const value = k > position ? "…" : (added[k] > 0 && !overwrite[k] ? "+" : "") + formatValue(added[k], "float16");
    return bar(viewer, { k, step, when, share: added[k] / most, value, now: k === position, later: k > position });
  });
  const hidden = steps.length - made.length;
  if (hidden) made.push(element("p", { class: "empty" }, `and ${hidden} more matmuls in this sum`));
  return element("div", { class: "bars" }, ...made);
}

/** @param {Viewer} viewer @param {{ k: number, step: number, when: string, share: number, value: string, now: boolean, later: boolean }} what */
function bar(viewer, { k, step, when, share, value, now, later }) {
  const size = Number.isFinite(share) ? Math.abs(share) * 50 : 0;
  const side = share < 0 ? `right:50%;width:${size}%` : `left:50%;width:${size}%`;
  const kind = `bar${now ? " now" : ""}${later ? " later" : ""}${share < 0 ? " below" : ""}`;
  return element("button", { type: "button", class: kind, title: `Go to step ${step}`, click: () => viewer.go(step) },
    element("span", { class: "k" }, `k = ${k}`), element("span", { class: "when" }, when),
    element("span", { class: "track" }, element("i", { style: side })), element("span", { class: "value" }, value));
}
