// @ts-check
/** Lines from where elements come to where they go. */

import { element, shape } from "./dom.js";

/**
 * @typedef {{ place: number, words: string, state: string }} End its place in the order of its side
 * @typedef {{ from: End, to: End, state: string }} Wire
 */

const GAP = 130;
const LINE = 15;

/** @param {{ label: string, caption: string, wires: Wire[] }} picture */
export function wirePicture({ label, caption, wires }) {
  const sides = [ends(wires.map((wire) => wire.from)), ends(wires.map((wire) => wire.to))];
  const [left, room] = sides.map((side) => 20 + 6.2 * Math.max(0, ...[...side.values()].map(({ end }) => end.words.length)));
  const y = (/** @type {number} */ row) => 16 + row * LINE;
  const width = left + GAP + room;
  const rows = Math.max(...sides.map((side) => side.size), 1);
  const picture = shape("svg", { viewBox: `0 0 ${width} ${y(rows)}`, class: "order indices", role: "img", style: `max-width:${width}px`, "aria-label": label });
  sides.forEach((side, i) => {
    for (const { row, end } of side.values()) {
      const x = i ? left + GAP + 8 : left - 8;
      picture.append(shape("text", { x, y: y(row) + 4, class: `axis side${i ? " start" : ""}${end.state === "outside" ? " outside" : ""}` }, end.words));
      if (end.state === "outside" && !i) picture.append(shape("path", { d: `M${left - 4} ${y(row) - 4}l8 8m0-8l-8 8`, class: "wire outside" }));
    }
  });
  for (const { from, to, state } of wires) {
    const [a, b] = [/** @type {any} */ (sides[0].get(from.place)), /** @type {any} */ (sides[1].get(to.place))];
    picture.append(shape("line", { x1: left, y1: y(a.row), x2: left + GAP, y2: y(b.row), class: state ? `wire ${state}` : "wire" }));
  }
  return element("figure", { class: "pattern" }, picture, element("figcaption", {}, caption));
}

/** The ends of one side, each once, in their order. @param {End[]} all @returns {Map<number, { row: number, end: End }>} */
function ends(all) {
  const sorted = [...new Map(all.map((end) => [end.place, end])).values()].sort((a, b) => a.place - b.place);
  return new Map(sorted.map((end, row) => [end.place, { row, end }]));
}
