// @ts-check
/** Diverging colours for values: blue below zero, orange above, the ground at zero; magenta for what is no number. */

/** @typedef {[number, number, number]} Rgb */

const BELOW = /** @type {Rgb} */ ([0, 114, 178]);
const ABOVE = /** @type {Rgb} */ ([213, 94, 0]);
const NO_NUMBER = /** @type {Rgb} */ ([170, 51, 119]);

const HALF = 256;
const NAN = 2 * HALF + 1;

/**
 * The colours of a heatmap as pixels, from the most negative over zero to the most positive, then that of NaN.
 * @param {Rgb} ground the colour of zero
 */
export function palette(ground) {
  const made = new Uint32Array(NAN + 1);
  for (let i = 0; i < NAN; i++) {
    const share = Math.abs(i - HALF) / HALF;
    const end = i < HALF ? BELOW : ABOVE;
    const mix = (/** @type {number} */ channel) => Math.round(ground[channel] + (end[channel] - ground[channel]) * share);
    made[i] = pixel([mix(0), mix(1), mix(2)]);
  }
  made[NAN] = pixel(NO_NUMBER);
  return made;
}

/** @param {Rgb} colour as the bytes of an image lie in memory */
function pixel([red, green, blue]) {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

/**
 * Where a value stands in the palette.
 * @param {number} value
 * @param {number} scale the magnitude of full colour
 */
export function shade(value, scale) {
  if (value !== value) return NAN;
  const share = scale > 0 ? value / scale : 0;
  return HALF + Math.round(HALF * Math.max(-1, Math.min(1, share)));
}

/**
 * The largest finite magnitude of some values.
 * @param {ArrayLike<number>} values
 */
export function magnitude(values) {
  let most = 0;
  for (let i = 0; i < values.length; i++) {
    const size = Math.abs(values[i]);
    if (size > most && size < Infinity) most = size;
  }
  return most;
}

/**
 * A matrix brought down to at most `height` × `width` cells: of each cell the value farthest from zero, or NaN.
 * @param {ArrayLike<number>} values
 * @param {number} rows
 * @param {number} columns
 * @param {number} height
 * @param {number} width
 */
export function shrink(values, rows, columns, height, width) {
  const tall = Math.min(rows, height);
  const wide = Math.min(columns, width);
  const cells = new Float32Array(tall * wide);
  const column = new Uint32Array(columns);
  for (let x = 0; x < columns; x++) column[x] = Math.floor((x * wide) / columns);
  for (let y = 0; y < rows; y++) {
    const base = Math.floor((y * tall) / rows) * wide;
    for (let x = 0; x < columns; x++) {
      const value = values[y * columns + x];
      const cell = base + column[x];
      if (value !== value || Math.abs(value) > Math.abs(cells[cell])) cells[cell] = value;
    }
  }
  return { cells, tall, wide };
}

/**
 * Which elements differ in their bits, and the box around them.
 * @param {ArrayLike<number>} before
 * @param {ArrayLike<number>} after
 * @param {number} columns
 */
export function changes(before, after, columns) {
  let count = 0;
  let top = Infinity, left = Infinity, bottom = -1, right = -1;
  for (let i = 0; i < after.length; i++) {
    if (before[i] === after[i]) continue;
    count++;
    const y = Math.floor(i / columns);
    const x = i % columns;
    top = Math.min(top, y);
    bottom = Math.max(bottom, y);
    left = Math.min(left, x);
    right = Math.max(right, x);
  }
  return { count, top, left, bottom: bottom + 1, right: right + 1 };
}
