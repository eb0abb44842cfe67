// @ts-check
/** Access patterns: the order in which a DMA takes the elements of a tensor, and the pattern in words. */

/**
 * @typedef {{ row: number, column: number, orders: number[] }} Cell
 * @typedef {{ rows: number[], columns: number[], cells: Cell[], more: boolean }} Sample The first elements, where they lie.
 */

const INNER = 7;
const OUTER = 5;

/**
 * How many indices of each dimension a sample takes: some of the last two that have several, two of the others.
 * @param {number[]} sizes
 */
export function sampleSizes(sizes) {
  const several = sizes.map((n, i) => (n > 1 ? i : -1)).filter((i) => i >= 0).reverse();
  return sizes.map((n, i) => Math.min(n, i === several[0] ? INNER : i === several[1] ? OUTER : 2));
}

/**
 * The first elements of a pattern: where each lies, and the how-manieth it is.
 * @param {[number, number][]} pattern stride and size of each dimension, in elements
 * @param {number} offset
 * @param {number} rowLength elements in a row of the tensor
 * @param {number[]} [axes] of a transpose: dimension `axes[i]` here is dimension `i` of the order
 * @returns {Sample}
 */
export function sample(pattern, offset, rowLength, axes = pattern.map((_, i) => i)) {
  const sizes = pattern.map(([, n]) => n);
  const taken = sampleSizes(axes.map((axis) => sizes[axis]));
  /** @type {Map<number, Cell>} */
  const cells = new Map();
  const count = taken.reduce((a, b) => a * b, 1);
  for (let i = 0; i < count; i++) {
    let rest = i;
    let address = offset;
    let order = 0;
    let unit = 1;
    for (let dim = axes.length - 1; dim >= 0; dim--) {
      const index = rest % taken[dim];
      rest = Math.floor(rest / taken[dim]);
      address += index * pattern[axes[dim]][0];
      order += index * unit;
      unit *= sizes[axes[dim]];
    }
    const cell = cells.get(address) ?? { row: Math.floor(address / rowLength), column: address % rowLength, orders: [] };
    cell.orders.push(order);
    cells.set(address, cell);
  }
  const sorted = (/** @type {number[]} */ list) => [...new Set(list)].sort((a, b) => a - b);
  const found = [...cells.values()];
  const more = count < sizes.reduce((a, b) => a * b, 1);
  return { rows: sorted(found.map((c) => c.row)), columns: sorted(found.map((c) => c.column)), cells: found, more };
}

/**
 * A pattern in words, outermost dimension first.
 * @param {[number, number][]} pattern
 */
export function patternWords(pattern) {
  const parts = pattern.filter(([, n]) => n > 1).map(([stride, n]) => {
    if (stride === 0) return `the same one ${n} times`;
    return stride === 1 ? `${n} in a row` : `${n} rows ${stride} apart`;
  });
  return parts.length ? parts.join(" × ") : "one element";
}
