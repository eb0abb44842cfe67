// @ts-check
/** Where the tiles lie: tensors in HBM with the part that this instruction touches, SBUF by bytes, PSUM by banks. */

import { element, pane, shape } from "./dom.js";
import { formatBytes, formatShape } from "./numbers.js";
import { bands, rowBytes } from "./regions.js";

/** @typedef {import("./viewer.js").Viewer} Viewer */
/** @typedef {import("./overview.js").Allocation} Allocation */

const PARTITIONS = 128;
const MARGINS = 2 * 12 + 34; // of the pane, and for the partition numbers
const MOST_ABSENT = 40;
const MOST_TENSORS = 24;

/** @param {Viewer} viewer */
export function memoryPane(viewer) {
  const { store } = viewer;
  const { root, note, body } = pane("memory", "Memory");
  note.append(legend("read", "read now"), legend("write", "written now"), legend("live", "alive"), legend("absent", "freed or not yet"));
  let width = 0; // known from the observer: asking the page for it at each step would make it lay out twice
  const draw = () => {
    const cores = viewer.overview.coresShown(viewer.state.step, viewer.state.core);
    body.replaceChildren(...hbm(viewer), ...cores.flatMap((core) => [...sbuf(viewer, width, core), ...psum(viewer, width, core)]));
  };
  store.subscribe((_, changed) => {
    if (changed.has("step") || changed.has("detail") || changed.has("tile") || changed.has("core")) draw();
  });
  new ResizeObserver(() => {
    const now = Math.max(240, body.clientWidth - MARGINS);
    if (now === width) return;
    width = now;
    if (viewer.state.step >= 0) draw();
  }).observe(body);
  return root;
}

/** @param {string} kind @param {string} words */
function legend(kind, words) {
  return element("span", { class: "legend" }, element("i", { class: `swatch ${kind}` }), words);
}

/** @param {string} title @param {string} note */
function heading(title, note) {
  return element("h4", {}, title, element("span", { class: "note" }, note));
}

// -- HBM ---------------------------------------------------------------------------------------------------------------

/** @param {Viewer} viewer */
function hbm(viewer) {
  const { overview, state } = viewer;
  const touched = overview.touched(state.step);
  const all = overview.allocations.filter((a) => a.region === "hbm" && a.role !== "constant");
  const first = all.filter((a) => touched.reads.has(a.id) || touched.writes.has(a.id));
  const shown = new Set(all.length <= MOST_TENSORS ? all : [...first, ...all].slice(0, MOST_TENSORS));
  const figures = all.filter((a) => shown.has(a)).map((a) => tensor(viewer, a));
  const more = all.length - figures.length;
  return [heading("HBM", more > 0 ? `and ${more} more tensors` : ""), element("div", { class: "tensors" }, ...figures)];
}

/** @param {Viewer} viewer @param {Allocation} tile */
function tensor(viewer, tile) {
  const columns = tile.shape.length > 1 ? tile.shape[tile.shape.length - 1] : tile.shape[0];
  const rows = tile.shape.length > 1 ? tile.shape.slice(0, -1).reduce((a, b) => a * b, 1) : 1;
  const long = 150;
  const tall = 62;
  const scale = Math.min(long / columns, tall / rows);
  const width = Math.max(columns * scale, 14);
  const height = Math.max(rows * scale, 10);
  const picture = shape("svg", { width: width + 2, height: height + 2, viewBox: `-1 -1 ${width + 2} ${height + 2}`, class: "map", "aria-hidden": "true" });
  picture.append(shape("rect", { x: 0, y: 0, width, height, class: "tensor" }));
  const cuts = viewer.overview.grids[tile.id] ?? [];
  if (tile.shape.length <= 2) {
    for (const x of cuts[cuts.length - 1] ?? []) picture.append(shape("line", { x1: (x / columns) * width, x2: (x / columns) * width, y1: 0, y2: height, class: "cut" }));
    if (tile.shape.length === 2) for (const y of cuts[0] ?? []) picture.append(shape("line", { x1: 0, x2: width, y1: (y / rows) * height, y2: (y / rows) * height, class: "cut" }));
  }
  for (const operand of operandsOf(viewer, tile)) {
    for (const band of bands(tile.shape, operand.box)) {
      picture.append(shape("rect", {
        x: (band.left / columns) * width, y: (band.top / rows) * height,
        width: Math.max(1.5, ((band.right - band.left) / columns) * width), height: Math.max(1.5, ((band.bottom - band.top) / rows) * height),
        class: operand.writes ? "write" : "read",
      }));
    }
  }
  return tileButton(viewer, tile, "tensor-figure",
    element("span", { class: "name" }, tile.label, element("small", {}, ` ${formatShape(tile.shape)}`)), picture);
}

/** @param {Viewer} viewer @param {Allocation} tile @returns {any[]} */
function operandsOf(viewer, tile) {
  return (viewer.state.detail?.operands ?? []).filter((/** @type {any} */ o) => o.allocation === tile.id && o.box);
}

/** @param {Viewer} viewer @param {Allocation} tile @param {string} name @param {...(Node | string)} inside */
function tileButton(viewer, tile, name, ...inside) {
  const selected = viewer.state.tile === tile.id;
  return element("div", {
    class: `${name}${selected ? " selected" : ""}`, role: "button", tabindex: 0, "aria-pressed": selected,
    "aria-label": words(tile), title: words(tile), ...selecting(viewer, tile),
  }, ...inside);
}

/** @param {Viewer} viewer @param {Allocation} tile */
function selecting(viewer, tile) {
  const select = () => viewer.store.set({ tile: viewer.state.tile === tile.id ? null : tile.id });
  return {
    click: select,
    keydown: (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      event.stopPropagation();
      select();
    },
  };
}

/** @param {Allocation} tile */
function words(tile) {
  const place = tile.region === "hbm" ? "" : `, ${formatBytes(tile.row_bytes)} in each of ${tile.partitions} partitions from byte ${tile.placed}`;
  const time = tile.last < 0 ? "never used" : `steps ${tile.born} to ${tile.last}`;
  return `${tile.label}: ${tile.region} ${tile.dtype} [${formatShape(tile.shape)}]${place}, ${time}${tile.line ? `, line ${tile.line}` : ""}`;
}

// -- on chip -----------------------------------------------------------------------------------------------------------

/** A memory's name, with its core's where there are several. @param {Viewer} viewer @param {string} memory @param {number} core */
function named(viewer, memory, core) {
  const { cores } = viewer.overview;
  return cores.length > 1 ? `${memory} of ${cores[core]}` : memory;
}

/** @param {Viewer} viewer @param {number} width @param {number} core */
function sbuf(viewer, width, core) {
  const { limit, peak, high } = viewer.overview.memory.each[core].sbuf;
  const shown = Math.max(high, peak, 64);
  const over = shown > limit;
  const now = viewer.overview.alive(viewer.state.step).filter((a) => a.region === "sbuf" && a.core === core).reduce((sum, a) => sum + a.row_bytes, 0);
  const picture = chip(viewer, "sbuf", core, width, 150, width / shown);
  if (over) picture.append(shape("line", { x1: (limit / shown) * width, x2: (limit / shown) * width, y1: -4, y2: 154, class: "limit" }));
  const foot = element("p", { class: "foot" }, element("span", {}, "0"),
    element("span", {}, over ? `limit ${formatBytes(limit)} marked` : "bytes in each partition →"), element("span", {}, formatBytes(shown)));
  return [heading(named(viewer, "SBUF", core), `now ${formatBytes(now)} · peak ${formatBytes(peak)} of ${formatBytes(limit)} per partition`),
    usage(now, peak, limit), picture, foot];
}

/** A bar of the whole partition, which the map below magnifies. @param {number} now @param {number} peak @param {number} limit */
function usage(now, peak, limit) {
  const part = (/** @type {number} */ n) => `${Math.min(100, (100 * n) / limit)}%`;
  return element("div", { class: "usage", "aria-hidden": "true" },
    element("i", { class: "peak", style: `width:${part(peak)}` }), element("i", { class: "used", style: `width:${part(now)}` }));
}

/** @param {Viewer} viewer @param {number} width @param {number} core */
function psum(viewer, width, core) {
  const { banks, bank_bytes: size, each } = viewer.overview.memory;
  const { peak } = each[core].psum;
  const picture = chip(viewer, "psum", core, width, 110, width / (banks * size));
  for (let i = 1; i < banks; i++) picture.children[0].after(shape("line", { x1: (i / banks) * width, x2: (i / banks) * width, y1: 0, y2: 110, class: "cut" }));
  const numbers = Array.from({ length: banks }, (_, i) => element("span", {}, String(i)));
  return [heading(named(viewer, "PSUM", core), `${banks} banks × ${formatBytes(size)} · peak ${Math.ceil(peak / size)} of ${banks} banks`),
    picture, element("p", { class: "foot banks" }, ...numbers), ...accumulation(viewer, core, size)];
}

/** The sum that is under way in a bank, when this step is a part of it. @param {Viewer} viewer @param {number} core @param {number} size of a bank */
function accumulation(viewer, core, size) {
  const { detail, step } = viewer.state;
  if (!detail?.matmul || viewer.overview.planOf(step).core !== core) return [];
  const { group, position, evicted } = detail.matmul;
  const { label, placed } = viewer.overview.allocations[detail.operands.find((/** @type {any} */ o) => o.writes).allocation];
  const parts = [`bank ${Math.floor(placed / size)}: ${label}, ${position + 1} of ${group.length} added`,
    `steps ${group[0]} to ${group[group.length - 1]}`, evicted === null ? "never read" : `read at ${evicted}`];
  return [element("p", { class: "sum-note" }, parts.join(" · "))];
}

/**
 * One memory: partitions down, bytes across.
 * @param {Viewer} viewer @param {string} region @param {number} core @param {number} width @param {number} height @param {number} scale pixels of a byte
 */
function chip(viewer, region, core, width, height, scale) {
  const { overview, state } = viewer;
  const here = (/** @type {Allocation} */ a) => a.region === region && a.core === core;
  const touched = overview.touched(state.step);
  const picture = shape("svg", { width: width + 34, height: height + 8, viewBox: `-32 -4 ${width + 34} ${height + 8}`, class: `map ${region}`,
    role: "group", "aria-label": `${region.toUpperCase()} at step ${state.step}` });
  picture.append(shape("rect", { x: 0, y: 0, width, height, class: "ground" }));
  for (const partition of [0, 64, 127]) {
    picture.append(shape("text", { x: -5, y: partition === 0 ? 8 : (height * partition) / PARTITIONS + 3, class: "axis" }, String(partition)));
  }
  const alive = overview.alive(state.step).filter(here);
  const absent = overview.absent(state.step, MOST_ABSENT).filter((a) => here(a) && !alive.some((b) => overlap(a, b)));
  const names = distinct(alive);
  for (const tile of absent) picture.append(place(viewer, tile, tile.label, scale, height, "absent"));
  for (const tile of alive) {
    const kind = tile.id === overview.failure?.tile && state.step === overview.steps - 1 ? "refused" : touched.writes.has(tile.id) ? "write" : touched.reads.has(tile.id) ? "read" : "live";
    picture.append(place(viewer, tile, names.get(tile) ?? "", scale, height, kind));
  }
  return picture;
}

/** @param {Allocation} a @param {Allocation} b */
function overlap(a, b) {
  const across = a.placed < b.placed + b.row_bytes && b.placed < a.placed + a.row_bytes;
  return across && a.start_partition < b.start_partition + b.partitions && b.start_partition < a.start_partition + a.partitions;
}

/**
 * Names of tiles that exist at one time, numbered where a name stands for several.
 * @param {Allocation[]} tiles
 * @returns {Map<Allocation, string>}
 */
export function distinct(tiles) {
  const counts = new Map();
  for (const { label } of tiles) counts.set(label, (counts.get(label) ?? 0) + 1);
  const seen = new Map();
  return new Map(tiles.map((tile) => {
    const number = seen.get(tile.label) ?? 0;
    seen.set(tile.label, number + 1);
    return [tile, counts.get(tile.label) > 1 ? `${tile.label}·${number}` : tile.label];
  }));
}

/** @param {Viewer} viewer @param {Allocation} tile @param {string} name @param {number} scale @param {number} height @param {string} kind */
function place(viewer, tile, name, scale, height, kind) {
  const box = { x: tile.placed * scale, y: (height * tile.start_partition) / PARTITIONS,
    width: Math.max(1.5, tile.row_bytes * scale), height: Math.max(1.5, (height * tile.partitions) / PARTITIONS) };
  const selected = viewer.state.tile === tile.id;
  const made = shape("g", { class: `tile ${kind}${selected ? " selected" : ""}`, role: "button", tabindex: 0, "data-tile": tile.id,
    "aria-label": words(tile), "aria-pressed": selected, ...selecting(viewer, tile) });
  made.append(shape("title", {}, words(tile)), shape("rect", { ...box, class: "body" }));
  for (const operand of operandsOf(viewer, tile)) {
    const { first, last } = rowBytes(tile, operand.box);
    made.append(shape("rect", {
      x: box.x + first * scale, width: Math.max(1.5, (last - first) * scale),
      y: box.y + (height * operand.box[0][0]) / PARTITIONS, height: Math.max(1.5, (height * (operand.box[0][1] + 1 - operand.box[0][0])) / PARTITIONS),
      class: "touched",
    }));
  }
  made.append(...label(name, box));
  return made;
}

/** The tile's name where it fits: across, upright, or not at all. @param {string} text @param {{x: number, y: number, width: number, height: number}} box */
function label(text, box) {
  const x = box.x + box.width / 2;
  const y = box.y + box.height / 2;
  const across = Math.floor((box.width - 6) / 6.7);
  const along = Math.floor((box.height - 6) / 6.7);
  if (across >= Math.min(text.length, 4) && box.height >= 12) return [shape("text", { x, y: y + 4, class: "label" }, clip(text, across))];
  if (along >= Math.min(text.length, 4) && box.width >= 12) return [shape("text", { x: x + 4, y, class: "label", transform: `rotate(-90 ${x + 4} ${y})` }, clip(text, along))];
  return [];
}

/** A text cut to a length; a number at its end stays. @param {string} text @param {number} most */
function clip(text, most) {
  const number = /·\d+$/.exec(text)?.[0] ?? "";
  return text.length <= most ? text : text.slice(0, Math.max(1, most - 1 - number.length)) + "…" + number;
}
