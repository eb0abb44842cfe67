// @ts-check
/** The rows of a program list: steps, and loops folded into one row. Pure arithmetic, so that 300 000 rows cost nothing. */

/**
 * @typedef {{ kind: "step", step: number, depth: number }} StepRow
 * @typedef {{ kind: "fold", start: number, length: number, times: number, open: boolean }} FoldRow
 * @typedef {{ row: number, rows: number, start: number, stop: number, fold: number }} Piece
 */

const LEAST_TIMES = 3;
const LEAST_STEPS = 12;

export class Rows {
  /**
   * @param {number} steps in the program
   * @param {[number, number, number][]} folds start, length and times of each loop, in order
   */
  constructor(steps, folds) {
    this.steps = steps;
    this.folds = folds.filter(([, length, times]) => times >= LEAST_TIMES && length * times >= LEAST_STEPS);
    /** @type {Set<number>} */
    this.open = new Set();
    this.current = 0;
    this.count = 0;
    /** @type {Piece[]} */
    this.pieces = [];
    this.layOut();
  }

  /**
   * Show all repetitions of a loop, or only the current one.
   * @param {number} start of the loop
   */
  toggle(start) {
    if (!this.open.delete(start)) this.open.add(start);
    this.layOut();
  }

  /**
   * Follow the current step: a folded loop shows the repetition that it is in.
   * @param {number} step
   */
  follow(step) {
    this.current = step;
    this.layOut();
  }

  layOut() {
    this.pieces = [];
    this.count = 0;
    let at = 0;
    this.folds.forEach(([start, length, times], fold) => {
      if (start > at) this.push(at, start, start - at, -1);
      const stop = start + length * times;
      const inside = start <= this.current && this.current < stop;
      this.push(start, stop, 1 + (this.open.has(start) ? length * times : inside ? length : 0), fold);
      at = stop;
    });
    if (this.steps > at) this.push(at, this.steps, this.steps - at, -1);
  }

  /** @param {number} start @param {number} stop @param {number} rows @param {number} fold */
  push(start, stop, rows, fold) {
    this.pieces.push({ row: this.count, rows, start, stop, fold });
    this.count += rows;
  }

  /**
   * What a row shows.
   * @param {number} row
   * @returns {StepRow | FoldRow}
   */
  at(row) {
    const piece = last(this.pieces, (p) => p.row <= row);
    const within = row - piece.row;
    if (piece.fold < 0) return { kind: "step", step: piece.start + within, depth: 0 };
    const [start, length, times] = this.folds[piece.fold];
    if (within === 0) return { kind: "fold", start, length, times, open: this.open.has(start) };
    return { kind: "step", step: this.firstShown(start, length) + within - 1, depth: 1 };
  }

  /** @param {number} start @param {number} length */
  firstShown(start, length) {
    return this.open.has(start) ? start : start + Math.floor((this.current - start) / length) * length;
  }

  /**
   * The row of a step, or of the loop that hides it.
   * @param {number} step
   */
  rowOf(step) {
    const piece = last(this.pieces, (p) => p.start <= step);
    if (piece.fold < 0) return piece.row + step - piece.start;
    const [start, length] = this.folds[piece.fold];
    const row = step - this.firstShown(start, length) + 1;
    return piece.row + (row >= 1 && row < piece.rows ? row : 0);
  }
}

/**
 * The last item for which something holds that holds for a first part of the list.
 * @template T
 * @param {T[]} items
 * @param {(item: T) => boolean} holds
 */
function last(items, holds) {
  let low = 0;
  let high = items.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (holds(items[middle])) low = middle;
    else high = middle - 1;
  }
  return items[low];
}
