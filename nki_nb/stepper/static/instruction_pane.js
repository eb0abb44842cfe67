// @ts-check
/** The instruction: what it is, its operands, and a picture that fits its kind. */

import { dmaView } from "./dma_view.js";
import { element, pane } from "./dom.js";
import { elementwiseView } from "./elementwise_view.js";
import { engine } from "./engines.js";
import { heatmap } from "./heatmap.js";
import { matmulView } from "./matmul_view.js";
import { formatTime } from "./numbers.js";

/** @typedef {import("./viewer.js").Viewer} Viewer */

/** @param {Viewer} viewer */
export function instructionPane(viewer) {
  const { store } = viewer;
  const { root, heading, note, body } = pane("instruction", "Instruction");
  const picture = element("div", { class: "picture" });
  const opened = element("div", { class: "opened" });
  body.append(picture, opened);
  let shown = 0;

  /** @param {any} detail */
  async function show(detail) {
    const mine = ++shown;
    try {
      const made = await viewOf(viewer, detail);
      if (mine !== shown) return;
      picture.replaceChildren(...sentence(detail), ...made);
    } catch (error) {
      if (mine !== shown || /** @type {Error} */ (error).name === "AbortError") return;
      picture.replaceChildren(...sentence(detail), element("p", { class: "empty" }, /** @type {Error} */ (error).message));
    }
    body.classList.remove("stale");
  }

  store.subscribe((state, changed) => {
    if (changed.has("step")) body.classList.add("stale");
    if (changed.has("step")) heading.textContent = viewer.overview.planOf(state.step).instruction;
    if (changed.has("trouble") && state.trouble) {
      shown++;
      note.textContent = "";
      picture.replaceChildren(element("p", { class: "sentence" }, viewer.overview.words(state.step)), element("p", { class: "empty" }, state.trouble));
      body.classList.remove("stale");
    }
    if (changed.has("detail") && state.detail) {
      const { name } = engine(state.detail.engine);
      note.textContent = `${name} engine · ${cost(viewer, state.detail)}`;
      show(state.detail);
    }
    if (changed.has("tile")) open(viewer, opened).then(() => (body.scrollTop = state.tile === null ? 0 : opened.offsetTop));
    else if (changed.has("detail") && state.detail) open(viewer, opened);
  });
  return root;
}

/** @param {Viewer} viewer @param {any} detail */
function cost(viewer, detail) {
  if (detail.cycles) return `${Math.round(detail.cycles).toLocaleString("en")} cycles`;
  return `${formatTime(viewer.overview.time.held[detail.index])} (estimate)`;
}

/** @param {any} detail */
function sentence(detail) {
  return [element("p", { class: "sentence" }, detail.text)];
}

/** @param {Viewer} viewer @param {any} detail @returns {Promise<Node[]>} */
function viewOf(viewer, detail) {
  if (detail.matmul) return matmulView(viewer, detail);
  if (detail.dma) return dmaView(viewer, detail);
  return elementwiseView(viewer, detail);
}

/** The selected tile, opened to its values before this step. @param {Viewer} viewer @param {HTMLElement} opened */
async function open(viewer, opened) {
  const { tile, step } = viewer.state;
  if (tile === null) return opened.replaceChildren();
  const { label, born, region } = viewer.overview.allocations[tile];
  if (region !== "hbm" && born > step) return opened.replaceChildren(element("p", { class: "empty" }, `${label} does not exist yet`));
  try {
    const matrix = await viewer.ask({ kind: "tensor", allocation: tile, step });
    if (viewer.state.tile === tile) opened.replaceChildren(element("h4", {}, `${label} before this step`), heatmap({ label, matrix, height: 140 }));
  } catch (error) {
    if (/** @type {Error} */ (error).name === "AbortError") return;
    opened.replaceChildren(element("h4", {}, label), element("p", { class: "empty" }, /** @type {Error} */ (error).message));
  }
}
