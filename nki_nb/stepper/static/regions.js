// @ts-check
/** Boxes of tensors (first and last index of each dimension) as rectangles of a drawing. */

const MOST_BANDS = 64;

/**
 * A box of a tensor drawn as rows (all dimensions but the last) by columns: one rectangle where the box is one in rows,
 * else several.
 * @param {number[]} shape
 * @param {[number, number][]} box
 */
export function bands(shape, box) {
  const rank = shape.length;
  const [left, right] = box[rank - 1];
  if (rank === 1) return [{ top: 0, bottom: 1, left, right: right + 1 }];
  /** @type {[number, number][]} */
  let runs = [[0, 0]];
  for (let dim = 0; dim < rank - 1; dim++) {
    const [first, last] = box[dim];
    const whole = first === 0 && last === shape[dim] - 1;
    /** @type {[number, number][]} */
    const next = [];
    for (const [a, b] of runs) {
      // a run of several rows stays one only where this dimension is not cut
      if (whole || a === b) next.push([a * shape[dim] + first, b * shape[dim] + last]);
      else for (let i = a; i <= b && next.length < MOST_BANDS; i++) next.push([i * shape[dim] + first, i * shape[dim] + last]);
    }
    runs = next;
  }
  return runs.map(([a, b]) => ({ top: a, bottom: b + 1, left, right: right + 1 }));
}

/**
 * First and last (exclusive) byte that a box touches in each partition of a tile on chip.
 * @param {{ shape: number[], row_bytes: number }} tile
 * @param {[number, number][]} box
 */
export function rowBytes(tile, box) {
  const free = tile.shape.slice(1);
  const size = tile.row_bytes / free.reduce((a, b) => a * b, 1);
  let first = 0;
  let last = 0;
  free.forEach((n, dim) => {
    first = first * n + box[dim + 1][0];
    last = last * n + box[dim + 1][1];
  });
  return { first: first * size, last: (last + 1) * size };
}
