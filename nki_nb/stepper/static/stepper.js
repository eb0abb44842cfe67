// @ts-check
/** The stepper: source, program, memory, instruction and time of one run, all at the same step. */

import { controls, keyboard } from "./controls.js";
import { element } from "./dom.js";
import { instructionPane } from "./instruction_pane.js";
import { memoryPane } from "./memory_pane.js";
import { formatTime, plural } from "./numbers.js";
import { Overview } from "./overview.js";
import { programPane } from "./program_pane.js";
import { LiveSource, StaticSource } from "./source.js";
import { sourcePane } from "./source_pane.js";
import { followTheme } from "./theme.js";
import { timePane } from "./time_pane.js";
import { Viewer } from "./viewer.js";

/** @typedef {import("./source.js").Source} Source */

const SETTLED = 120;

/**
 * Show a run in an element; the answer takes it away again.
 * @param {HTMLElement} place
 * @param {Source} source
 * @param {{ step?: number | null, deepLinks?: boolean, notice?: string }} [options]
 */
export async function mount(place, source, options = {}) {
  const root = element("div", { class: "nki-stepper", tabindex: 0, role: "application", "data-lm-suppress-shortcuts": "true",
    "aria-label": "Step through a kernel: arrow keys step, space plays, / searches" }, element("p", { class: "empty" }, "…"));
  place.append(root);
  const endings = [followTheme(root)];
  try {
    const overview = new Overview(await source.ask({ kind: "overview" }));
    endings.push(build(root, overview, source, options));
  } catch (error) {
    root.replaceChildren(element("p", { class: "banner", role: "alert" }, `This run cannot be shown: ${/** @type {Error} */ (error).message}`));
  }
  return () => {
    for (const end of endings) end();
    root.remove();
  };
}

/**
 * @param {HTMLElement} root
 * @param {Overview} overview
 * @param {Source} source
 * @param {{ step?: number | null, deepLinks?: boolean, notice?: string }} options
 */
function build(root, overview, source, options) {
  const viewer = new Viewer(root, overview, source);
  root.setAttribute("aria-label", `Step through ${overview.kernel}: arrow keys step, space plays, / searches`);
  root.replaceChildren(
    title(overview), ...banners(overview, options.notice), controls(viewer),
    element("div", { class: "panes" }, sourcePane(viewer), programPane(viewer), memoryPane(viewer), instructionPane(viewer), timePane(viewer)));
  keyboard(viewer);
  const linked = options.deepLinks ? deepLinks(viewer) : { step: null, end: () => {} };
  viewer.go(linked.step ?? options.step ?? overview.opening);
  return () => {
    viewer.play(false);
    linked.end();
  };
}

/** @param {Overview} overview */
function title(overview) {
  const facts = [overview.target, plural(overview.steps, "instruction"), `estimate ${formatTime(overview.time.total)}`];
  return element("h2", {}, overview.kernel, element("span", { class: "note" }, facts.join(" · ")));
}

/** What was found wrong, and what a saved page does not hold. @param {Overview} overview @param {string} [notice] */
function banners({ failure, findings }, notice) {
  const made = [];
  if (failure) made.push(fault(failure, "stopped here"));
  else if (findings.length) made.push(fault(findings[0], findings.length > 1 ? `and ${findings.length - 1} more` : ""));
  if (notice) made.push(element("p", { class: "banner notice", role: "note" }, notice));
  return made;
}

/** @param {any} diagnosis @param {string} more */
function fault(diagnosis, more) {
  const { instruction, message, line, text } = diagnosis;
  const head = [instruction && `${instruction}:`, message, line && `(line ${line})`, more && `· ${more}`].filter(Boolean).join(" ");
  return element("details", { class: "banner fault" }, element("summary", { role: "alert" }, head), element("pre", {}, text));
}

/** Keep `#step=17` in the page's address, and follow it. @param {Viewer} viewer */
function deepLinks(viewer) {
  const linked = () => {
    const found = /#step=(\d+)/.exec(location.hash);
    return found ? Number(found[1]) : null;
  };
  const follow = () => viewer.go(linked() ?? viewer.state.step);
  window.addEventListener("hashchange", follow);
  let timer = 0; // browsers limit how often an address may change
  viewer.store.subscribe((state, changed) => {
    if (!changed.has("step")) return;
    clearTimeout(timer);
    timer = window.setTimeout(() => history.replaceState(null, "", `#step=${state.step}`), SETTLED);
  });
  return { step: linked(), end: () => window.removeEventListener("hashchange", follow) };
}

/** Show the run that a saved page carries. @param {HTMLElement} place @param {any} saved */
export function mountSaved(place, saved) {
  const source = new StaticSource(saved);
  return mount(place, source, { deepLinks: true, notice: source.leftOut });
}

/** What anywidget calls. @param {{ model: any, el: HTMLElement }} widget */
async function render({ model, el }) {
  const source = new LiveSource(model, Math.floor(Math.random() * 2 ** 50));
  const end = await mount(el, source, { step: model.get("step") });
  return () => {
    end();
    source.close();
  };
}

export default { render };
