// @ts-check
/** What an instruction gathers, scatters, shuffles, scans or selects, drawn as what it is. */

import { element } from "./dom.js";
import { wirePicture } from "./wires.js";

/** @typedef {{ kind: string, words: string, source: string, target: string, pairs: [number, number, string][], count: number }} Move */

/** @param {any} detail @returns {Node[]} */
export function movePictures(detail) {
  return (detail.moves ?? []).map((/** @type {Move} */ move) => movePicture(move));
}

/** @param {Move} move */
function movePicture({ kind, words, source, target, pairs, count }) {
  const wires = pairs.map(([from, to, state]) => ({
    from: { place: from, words: `${source} ${from}${state === "outside" ? ": out of range" : ""}`, state },
    to: { place: to, words: `${target} ${to}${state && state !== "outside" ? `: ${state}` : ""}`, state },
    state,
  }));
  const more = count > pairs.length ? [`first ${pairs.length} of ${count}`] : [];
  return element("div", { class: "move" }, element("p", { class: "kind" }, `${kind}: ${words}`),
    wirePicture({ label: `${kind}: from ${source} to ${target}`, caption: more.join(""), wires }));
}
