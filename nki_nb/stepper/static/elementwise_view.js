// @ts-check
/** Any instruction on tiles: its inputs, and what it wrote before and after, changed elements marked. */

import { magnitude } from "./colours.js";
import { element } from "./dom.js";
import { heatmap } from "./heatmap.js";
import { movePictures } from "./moves_view.js";
import { tensorsOf, valuesOf } from "./operands.js";

/** @typedef {import("./viewer.js").Viewer} Viewer */

/** @param {Viewer} viewer @param {any} detail @returns {Promise<Node[]>} */
export async function elementwiseView(viewer, detail) {
  const inputs = tensorsOf(detail).filter((o) => !o.writes);
  const outputs = tensorsOf(detail).filter((o) => o.writes);
  const [read, before, after] = await Promise.all([
    Promise.all(inputs.map((o) => valuesOf(viewer, detail, o))),
    Promise.all(outputs.map((o) => valuesOf(viewer, detail, o))),
    Promise.all(outputs.map((o) => valuesOf(viewer, detail, o, true))),
  ]);
  const reads = inputs.map((o, i) => heatmap({ label: o.label, caption: o.name, matrix: read[i], kind: "read" }));
  const writes = outputs.map((o, i) => beforeAndAfter(viewer, o, before[i], after[i]));
  return [...movePictures(detail), element("div", { class: "figures" }, ...reads), ...writes, parameters(detail)];
}

/**
 * What an operand held before and holds after, in the same colours.
 * @param {Viewer} viewer
 * @param {any} operand
 * @param {import("./packing.js").Matrix | null} before
 * @param {import("./packing.js").Matrix | null} after
 */
export function beforeAndAfter(viewer, operand, before, after) {
  const unwritten = !viewer.overview.written(viewer.state.step, operand.allocation);
  const scale = after ? magnitude(after.values) : undefined;
  return element("div", { class: "figures pair" },
    heatmap({ label: operand.label, caption: "before", matrix: before, scale, unwritten }),
    heatmap({ label: operand.label, caption: "after", matrix: after, before: unwritten ? null : before, scale, kind: "write" }));
}

/** The parameters of an instruction, and its scalar operands. @param {any} detail */
export function parameters(detail) {
  const scalars = detail.operands.filter((/** @type {any} */ o) => o.allocation === undefined && o.label !== "-");
  const rows = [...scalars.map((/** @type {any} */ o) => [o.name, o.label]), ...Object.entries(detail.params)];
  const items = rows.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, String(value))]);
  return element("dl", { class: "parameters" }, ...items);
}
