// @ts-check
/** A DMA transfer: source and destination side by side in element order, its descriptors, and how well they use the engines. */

import { element, shape } from "./dom.js";
import { parameters, beforeAndAfter } from "./elementwise_view.js";
import { heatmap } from "./heatmap.js";
import { formatBytes, formatFewBytes, formatTime, formatValue, plural } from "./numbers.js";
import { operandNamed, valuesOf } from "./operands.js";
import { valueAt } from "./packing.js";
import { patternWords, sample } from "./patterns.js";
import { wirePicture } from "./wires.js";

/** @typedef {import("./viewer.js").Viewer} Viewer */

const FULL_ROW = 2048;
const CELL = { width: 30, height: 17 };
const MOST_LINES = 8;

const MOVES = {
  copy: "copy: element after element",
  transpose: "transpose: the source is read across the order it lies in",
  broadcast: "broadcast: one element goes to several places",
  gather: "gather: an index picks the source's rows",
  exchange: "exchange: the other core's tile comes here, while this core's goes there",
  scatter: "scatter: an index picks the destination's rows",
};

/** @param {Viewer} viewer @param {any} detail @returns {Promise<Node[]>} */
export async function dmaView(viewer, detail) {
  const src = operandNamed(detail, "received") ?? operandNamed(detail, "src");
  const dst = operandNamed(detail, "dst");
  const parts = [facts(viewer, detail), element("div", { class: "figures pair" }, ...patterns(viewer, detail, src, dst))];
  const values = await valueFigures(viewer, detail, src, dst);
  return [...parts, ...values, parameters(detail)];
}

/** @param {Viewer} viewer @param {any} detail */
function facts(viewer, detail) {
  const { dma, lane, index } = detail;
  const share = Math.round(dma.efficiency * 100);
  const kinds = dma.kinds.map((/** @type {keyof typeof MOVES} */ kind) => element("p", { class: "kind" }, MOVES[kind] ?? kind));
  const rows = [
    ["bytes", formatBytes(dma.bytes)],
    ["descriptors", `${dma.descriptors.toLocaleString("en")} of ${formatFewBytes(dma.descriptor_bytes)}`],
    ["queue", `${lane}, ${formatTime(viewer.overview.time.held[index])} (estimate)`],
  ].flatMap(([name, words]) => [element("dt", {}, name), element("dd", {}, words)]);
  const bar = element("div", { class: share < 50 ? "efficiency low" : "efficiency", role: "img", "aria-label": `descriptors ${share} % of 2 KiB` },
    element("i", { style: `width:${share}%` }), element("span", {}, `${share} % of a full ${formatBytes(FULL_ROW)} row in each descriptor`));
  return element("div", { class: "facts" }, ...kinds, element("dl", { class: "parameters" }, ...rows), bar);
}

/** @param {Viewer} viewer @param {any} detail @param {any} src @param {any} dst */
function patterns(viewer, detail, src, dst) {
  const transposed = detail.instruction === "dma_transpose" && src.shape.length === 2;
  return [patternFigure(viewer, src, "source", transposed ? [1, 0] : undefined), patternFigure(viewer, dst, "destination")];
}

/**
 * One side: the first elements where they lie, numbered in the order in which they move.
 * @param {Viewer} viewer @param {any} operand @param {string} side @param {number[]} [axes]
 */
function patternFigure(viewer, operand, side, axes) {
  const tile = viewer.overview.allocations[operand.allocation];
  const name = element("div", { class: "name" }, operand.label, element("small", {}, ` ${side} · ${tile.region.toUpperCase()} ${operand.dtype}`));
  if (operand.gathers) return element("figure", { class: "pattern" }, name, element("figcaption", {}, "rows by index: see below"));
  const length = tile.shape.slice(tile.region === "hbm" ? -1 : 1).reduce((/** @type {number} */ a, /** @type {number} */ b) => a * b, 1);
  const found = sample(operand.pattern, operand.offset, tile.shape.length > 1 ? length : tile.shape[0], axes);
  return element("figure", { class: "pattern" }, name, orderPicture(found, side), element("figcaption", {}, patternWords(operand.pattern)));
}

/** @param {import("./patterns.js").Sample} found @param {string} side */
function orderPicture({ rows, columns, cells, more }, side) {
  const left = 34;
  const top = 14;
  const width = left + columns.length * CELL.width + 14;
  const height = top + rows.length * CELL.height + (more ? 12 : 4);
  const picture = shape("svg", { viewBox: `0 0 ${width} ${height}`, class: "order", role: "img", style: `max-width:${width}px`,
    "aria-label": `order of the first elements at the ${side}` });
  columns.forEach((column, i) => picture.append(shape("text", { x: left + (i + 0.5) * CELL.width, y: 10, class: "axis" }, String(column))));
  rows.forEach((row, i) => picture.append(shape("text", { x: left - 5, y: top + (i + 0.7) * CELL.height, class: "axis side" }, String(row))));
  const most = Math.max(cells.length - 1, 1);
  [...cells].sort((a, b) => a.orders[0] - b.orders[0]).forEach(({ row, column, orders }, rank) => {
    const x = left + columns.indexOf(column) * CELL.width;
    const y = top + rows.indexOf(row) * CELL.height;
    const words = orders.length > 1 ? `${orders[0]}…` : String(orders[0]);
    picture.append(shape("rect", { x, y, width: CELL.width - 1, height: CELL.height - 1, class: "cell", "fill-opacity": (0.75 - (0.6 * rank) / most).toFixed(2) }),
      shape("text", { x: x + CELL.width / 2, y: y + 12, class: "order-number" }, words));
    if (orders.length > 1) picture.append(shape("title", {}, `goes to ${orders.join(", ")}, …`));
  });
  if (more) picture.append(shape("text", { x: left + 2, y: height - 3, class: "axis side start" }, "⋮"));
  return picture;
}

/** @param {Viewer} viewer @param {any} detail @param {any} src @param {any} dst */
async function valueFigures(viewer, detail, src, dst) {
  const indices = ["src_index", "dst_index"].map((name) => operandNamed(detail, name)).filter(Boolean);
  const [read, before, after, ...rows] = await Promise.all([
    valuesOf(viewer, detail, src), valuesOf(viewer, detail, dst), valuesOf(viewer, detail, dst, true),
    ...indices.map((o) => valuesOf(viewer, detail, o)),
  ]);
  const lines = indices.map((o, i) => indexPicture(viewer, detail, o.name === "src_index" ? src : dst, o, rows[i]));
  return [...lines, heatmap({ label: src.label, caption: "source", matrix: read, kind: "read", height: 72 }), beforeAndAfter(viewer, dst, before, after)];
}

/**
 * Which rows an index picks: a line from each lane to its row, crossed out where the row is out of range and the lane skipped.
 * @param {Viewer} viewer @param {any} detail @param {any} operand @param {any} index @param {import("./packing.js").Matrix | null} values
 */
function indexPicture(viewer, detail, operand, index, values) {
  const all = values ? Array.from(values.values, (_, i) => valueAt(values, i)) : [];
  const rows = viewer.overview.allocations[operand.allocation].shape[0];
  const outside = (/** @type {number} */ row) => row < 0 || row >= rows;
  const picked = all.slice(0, MOST_LINES);
  const gather = index.name === "src_index";
  const skipped = all.filter(outside).length;
  const words = [`${index.label} picks rows of ${operand.label}`];
  if (skipped) words.push(`${plural(skipped, "row")} out of range skipped`);
  if (all.length > picked.length) words.push(`first ${picked.length} of ${all.length} lanes`);
  const near = picked.map((row) => ({ place: row, words: outside(row) ? `row ${formatValue(row, "int32")}: out of range` : `row ${row}`, state: outside(row) ? "outside" : "" }));
  const far = picked.map((row, lane) => ({ place: lane, words: outside(row) ? `lane ${lane}: skipped` : `lane ${lane}`, state: outside(row) ? "outside" : "" }));
  const wires = picked.map((_, i) => ({ from: gather ? near[i] : far[i], to: gather ? far[i] : near[i], state: near[i].state }));
  return wirePicture({ label: `rows that ${index.label} picks`, caption: words.join(" · "), wires });
}
