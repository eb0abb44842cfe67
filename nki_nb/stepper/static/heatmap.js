// @ts-check
/** A matrix as a picture: hover for the exact value, data type and bits; arrow keys move the chosen element. */

import { changes, magnitude, palette, shade, shrink } from "./colours.js";
import { element } from "./dom.js";
import { formatBits, formatShape, formatValue } from "./numbers.js";
import { valueAt } from "./packing.js";

/** @typedef {import("./packing.js").Matrix} Matrix */

/**
 * @typedef {object} HeatmapOptions
 * @property {string} label
 * @property {string} [caption]
 * @property {Matrix | null} matrix
 * @property {Matrix | null} [before] what was there before: changed elements are marked
 * @property {number} [scale] the magnitude of full colour; of the matrix itself when not given
 * @property {boolean} [unwritten] nothing was ever written there: there are no values to show
 * @property {"read" | "write" | ""} [kind]
 * @property {number} [height] largest height in pixels
 * @property {[number, number] | null} [chosen]
 * @property {(row: number, column: number) => void} [choose]
 */

const SMALLEST_CELL = 7;

/** @param {HeatmapOptions} options */
export function heatmap(options) {
  const { label, matrix, caption = "" } = options;
  const name = element("div", { class: "name" }, label, element("small", {}, matrix ? ` ${formatShape(matrix.shape)} ${matrix.dtype}` : ""));
  if (matrix && options.unwritten) return element("figure", { class: "heatmap" }, name, element("div", { class: "unwritten" }, "never written"), element("figcaption", {}, caption));
  if (!matrix) return element("figure", { class: "heatmap" }, name, element("p", { class: "empty" }, "no values"));
  return new Heatmap(name, matrix, caption, options).root;
}

class Heatmap {
  /**
   * @param {HTMLElement} name
   * @param {Matrix} matrix
   * @param {string} caption
   * @param {HeatmapOptions} options
   */
  constructor(name, matrix, caption, options) {
    this.matrix = matrix;
    this.options = options;
    this.scale = options.scale ?? magnitude(matrix.values);
    /** @type {[number, number] | null} */
    this.chosen = options.chosen ?? null;
    this.changed = options.before ? changes(options.before.bits, matrix.bits, matrix.shownColumns) : null;
    this.canvas = element("canvas", { tabindex: 0, role: "img", class: options.kind ?? "", "aria-label": this.description(options.label) });
    this.readout = element("figcaption", {}, this.words(caption));
    this.root = element("figure", { class: "heatmap" }, name, this.canvas, this.readout);
    this.listen(caption);
    new ResizeObserver(() => this.draw()).observe(this.root);
    this.root.addEventListener("themechange", () => this.draw());
  }

  /** @param {string} label */
  description(label) {
    const { shape, dtype } = this.matrix;
    return `${label}, ${dtype} ${formatShape(shape)}, values to ${formatValue(this.scale, "float16")} in magnitude; arrow keys choose an element`;
  }

  /** @param {string} caption */
  words(caption) {
    const { rows, columns, shownRows, values } = this.matrix;
    const parts = [caption];
    if (this.changed) parts.push(this.changed.count === values.length ? "all changed" : `${this.changed.count} of ${values.length} changed`);
    if (shownRows < rows) parts.push(`first ${shownRows} of ${rows} rows`);
    if (rows * columns === 1) parts.push(this.read(0, 0));
    return parts.filter(Boolean).join(" · ");
  }

  /** @param {number} row @param {number} column */
  read(row, column) {
    const { bits, dtype, width, shownColumns } = this.matrix;
    const i = row * shownColumns + column;
    const was = this.options.before ? ` (was ${formatValue(valueAt(this.options.before, i), dtype)})` : "";
    return `[${row}, ${column}] ${formatValue(valueAt(this.matrix, i), dtype)}${was} · ${dtype} ${formatBits(bits[i], width)}`;
  }

  /** @param {string} caption */
  listen(caption) {
    const { canvas, readout, matrix } = this;
    canvas.addEventListener("pointermove", (event) => {
      const [row, column] = this.elementAt(event);
      readout.textContent = this.read(row, column);
    });
    canvas.addEventListener("pointerleave", () => (readout.textContent = this.words(caption)));
    canvas.addEventListener("click", (event) => this.choose(...this.elementAt(event)));
    canvas.addEventListener("keydown", (event) => {
      const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (!move) return;
      event.preventDefault();
      event.stopPropagation();
      const [row, column] = this.chosen ?? [0, 0];
      this.choose(Math.min(Math.max(row + move[0], 0), matrix.shownRows - 1), Math.min(Math.max(column + move[1], 0), matrix.shownColumns - 1));
    });
  }

  /** @param {MouseEvent} event @returns {[number, number]} */
  elementAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const { shownRows, shownColumns } = this.matrix;
    const row = Math.floor(((event.clientY - box.top - 1) / (box.height - 2)) * shownRows);
    const column = Math.floor(((event.clientX - box.left - 1) / (box.width - 2)) * shownColumns);
    return [Math.min(Math.max(row, 0), shownRows - 1), Math.min(Math.max(column, 0), shownColumns - 1)];
  }

  /** @param {number} row @param {number} column */
  choose(row, column) {
    this.chosen = [row, column];
    this.readout.textContent = this.read(row, column);
    this.draw();
    this.options.choose?.(row, column);
  }

  draw() {
    const { matrix, canvas, options } = this;
    const { shownRows: rows, shownColumns: columns } = matrix;
    const width = Math.max(24, Math.min(this.root.clientWidth - 2, columns * 24));
    const height = Math.max(14, Math.min(options.height ?? 96, (width * rows) / columns < 14 ? 14 : rows * 16));
    const ratio = window.devicePixelRatio || 1;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    context.imageSmoothingEnabled = false;
    context.drawImage(this.image(canvas.height, canvas.width), 0, 0, canvas.width, canvas.height);
    context.scale(canvas.width / columns, canvas.height / rows);
    this.markChanges(context, width / columns);
    this.markChosen(context);
  }

  /** @param {number} height @param {number} width */
  image(height, width) {
    const { values, shownRows, shownColumns } = this.matrix;
    const { cells, tall, wide } = shrink(values, shownRows, shownColumns, height, width);
    const made = new ImageData(wide, tall);
    const pixels = new Uint32Array(made.data.buffer);
    const colours = palette(groundOf(this.canvas));
    for (let i = 0; i < cells.length; i++) pixels[i] = colours[shade(cells[i], this.scale)];
    const picture = document.createElement("canvas");
    picture.width = wide;
    picture.height = tall;
    /** @type {CanvasRenderingContext2D} */ (picture.getContext("2d")).putImageData(made, 0, 0);
    return picture;
  }

  /** Changed elements: a corner on each where there is room, else a frame around them. @param {CanvasRenderingContext2D} context @param {number} cell */
  markChanges(context, cell) {
    const { changed, matrix: { values, bits, shownColumns }, options: { before } } = this;
    if (!changed?.count || !before || changed.count === values.length) return;
    context.fillStyle = context.strokeStyle = getComputedStyle(this.canvas).color;
    if (cell < SMALLEST_CELL) {
      context.lineWidth = 1.5 / cell;
      context.strokeRect(changed.left, changed.top, changed.right - changed.left, changed.bottom - changed.top);
      return;
    }
    for (let i = 0; i < bits.length; i++) {
      if (bits[i] !== before.bits[i]) context.fillRect((i % shownColumns) + 0.7, Math.floor(i / shownColumns) + 0.05, 0.25, 0.25);
    }
  }

  /** @param {CanvasRenderingContext2D} context */
  markChosen(context) {
    if (!this.chosen) return;
    const [row, column] = this.chosen;
    const { a: across, d: down } = context.getTransform();
    const size = Math.max(9 * (window.devicePixelRatio || 1), across);
    const tall = Math.max(9 * (window.devicePixelRatio || 1), down);
    context.setTransform(1, 0, 0, 1, 0, 0);
    for (const [style, line] of /** @type {[string, number][]} */ ([["#ffffff", 4], ["#111111", 2]])) {
      context.strokeStyle = style;
      context.lineWidth = line;
      context.strokeRect((column + 0.5) * across - size / 2, (row + 0.5) * down - tall / 2, size, tall);
    }
  }
}

/** The colour of zero: the ground that the canvas stands on. @param {HTMLElement} canvas @returns {[number, number, number]} */
function groundOf(canvas) {
  const parts = getComputedStyle(canvas).backgroundColor.match(/[\d.]+/g)?.map(Number) ?? [255, 255, 255];
  return [parts[0], parts[1], parts[2]];
}
