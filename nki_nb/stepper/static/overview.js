// @ts-check
/** What is known of a run at once, unpacked, and the questions that the panes ask of it. */

import { unpack } from "./packing.js";

/**
 * @typedef {object} Allocation
 * @property {number} id
 * @property {string} label
 * @property {string} region `hbm`, `sbuf` or `psum`
 * @property {string} role
 * @property {number[]} shape
 * @property {string} dtype
 * @property {number} partitions
 * @property {number} start_partition
 * @property {number} row_bytes
 * @property {number} placed
 * @property {boolean} pinned
 * @property {number} born
 * @property {number} last
 * @property {number | null} line
 * @property {number} core
 *
 * @typedef {{ line: number, last: number, file: number, place: string }} Place
 * @typedef {{ instruction: string, engine: string, cycles: number, touches: number, core: number }} Plan
 */

const NOWHERE = { line: 0, last: 0, file: 0, place: "" };

export class Overview {
  /** @param {any} sent what `Feed.overview` made */
  constructor(sent) {
    this.kernel = /** @type {string} */ (sent.kernel);
    this.target = /** @type {string} */ (sent.target);
    this.cores = /** @type {string[]} */ (sent.cores);
    this.steps = /** @type {number} */ (sent.steps);
    this.plans = /** @type {Plan[]} */ (sent.plans);
    this.sites = /** @type {Place[]} */ (sent.sites);
    this.files = /** @type {{ name: string, lines: string[] }[]} */ (sent.files);
    this.folds = /** @type {[number, number, number][]} */ (sent.folds);
    this.allocations = /** @type {Allocation[]} */ (sent.allocations);
    this.grids = /** @type {Record<string, number[][]>} */ (sent.grids);
    this.memory = sent.memory;
    this.findings = /** @type {any[]} */ (sent.findings);
    this.failure = /** @type {any} */ (sent.failure);
    this.opening = /** @type {number} */ (sent.start);
    this.plan = unpack(sent.plan);
    this.site = unpack(sent.site);
    this.touch = unpack(sent.touch);
    this.touchFirst = new Int32Array(this.steps + 1);
    for (let i = 0; i < this.steps; i++) this.touchFirst[i + 1] = this.touchFirst[i] + this.plans[this.plan[i]].touches;
    this.time = unpackTime(sent.time);
    const used = this.allocations.filter((a) => a.region !== "hbm" && a.last >= 0);
    this.lives = { born: [...used].sort((a, b) => a.born - b.born), dead: [...used].sort((a, b) => a.last - b.last) };
  }

  /** @param {number} step */
  planOf(step) {
    return this.plans[this.plan[step]];
  }

  /**
   * Where a step came from.
   * @param {number} step
   * @returns {Place}
   */
  placeOf(step) {
    return this.sites[this.site[step] - 1] ?? NOWHERE;
  }

  /**
   * The tensors that a step reads and writes, by number.
   * @param {number} step
   */
  touched(step) {
    const reads = new Set();
    const writes = new Set();
    for (let i = this.touchFirst[step]; i < this.touchFirst[step + 1]; i++) {
      (this.touch[i] & 1 ? writes : reads).add(this.touch[i] >> 1);
    }
    return { reads, writes };
  }

  /**
   * What a step does, in names: enough until its text has come.
   * @param {number} step
   */
  words(step) {
    const { reads, writes } = this.touched(step);
    const names = (/** @type {Set<number>} */ tiles) => [...tiles].map((tile) => this.allocations[tile].label).join(", ");
    return `${names(writes)} ← ${names(reads)}`;
  }

  /**
   * Tiles on chip that exist at a step; at the last one also what a refused instruction was about.
   * @param {number} step
   */
  alive(step) {
    const refused = step === this.steps - 1 ? this.failure?.tile : undefined;
    return this.allocations.filter((a) => a.region !== "hbm" && ((a.born <= step && step <= a.last) || a.id === refused));
  }

  /**
   * Tiles on chip that do not exist at a step, nearest in time first, one for each place.
   * @param {number} step
   * @param {number} most
   */
  absent(step, most) {
    const { born, dead } = this.lives;
    let next = firstWhere(born, (a) => a.born > step);
    let past = firstWhere(dead, (a) => a.last >= step) - 1;
    const places = new Map();
    for (let looked = 0; looked < 16 * most && places.size < most && (next < born.length || past >= 0); looked++) {
      const wait = next < born.length ? born[next].born - step : Infinity;
      const gone = past >= 0 ? step - dead[past].last : Infinity;
      const tile = gone <= wait ? dead[past--] : born[next++];
      const place = [tile.core, tile.region, tile.placed, tile.start_partition, tile.row_bytes].join();
      if (!places.has(place)) places.set(place, tile);
    }
    return [...places.values()];
  }

  /**
   * Whether anything had been written to a tensor before a step. (Of tiles at an address of their own, who knows.)
   * @param {number} step
   * @param {number} tile
   */
  written(step, tile) {
    const { role, pinned, born } = this.allocations[tile];
    if (role === "input" || role === "constant" || pinned) return true;
    const stop = this.touchFirst[step];
    for (let i = this.touchFirst[Math.max(born, 0)]; i < stop; i++) if (this.touch[i] === 2 * tile + 1) return true;
    return false;
  }

  /**
   * The cores whose memories are shown at a step: the chosen one, both of two, of more that of the step.
   * @param {number} step
   * @param {number | null} chosen
   */
  coresShown(step, chosen) {
    if (chosen !== null) return [chosen];
    return this.cores.length <= 2 ? this.cores.map((_, i) => i) : [this.planOf(step)?.core ?? 0];
  }

  // -- jumps: each answers a step, or -1 -----------------------------------------------------------------------------

  /**
   * The nearest step after (or before) `from` for which something holds.
   * @param {number} from
   * @param {number} direction 1 or -1
   * @param {(step: number) => boolean} holds
   */
  seek(from, direction, holds) {
    for (let step = from + direction; step >= 0 && step < this.steps; step += direction) {
      if (holds(step)) return step;
    }
    return -1;
  }

  /**
   * The nearest step of a core, of any where none is chosen.
   * @param {number} step
   * @param {number} direction 1 or -1
   * @param {number | null} core
   */
  ofCore(step, direction, core) {
    if (core === null) return step + direction;
    return this.seek(step, direction, (other) => this.planOf(other).core === core);
  }

  /** @param {number} step @param {number} [direction] */
  sameEngine(step, direction = 1) {
    const { engine, core } = this.planOf(step);
    return this.seek(step, direction, (other) => this.planOf(other).engine === engine && this.planOf(other).core === core);
  }

  /** @param {number} step @param {number} tile @param {number} [direction] */
  touching(step, tile, direction = 1) {
    return this.seek(step, direction, (other) => {
      for (let i = this.touchFirst[other]; i < this.touchFirst[other + 1]; i++) {
        if (this.touch[i] >> 1 === tile) return true;
      }
      return false;
    });
  }

  /**
   * The next step that a line issues, after the last one the first again.
   * @param {number} step
   * @param {number} line
   * @param {number} file
   */
  onLine(step, line, file) {
    const sites = this.sites.map((s) => s.file === file && s.line <= line && line <= s.last);
    const holds = (/** @type {number} */ other) => sites[this.site[other] - 1] ?? false;
    const next = this.seek(step, 1, holds);
    return next >= 0 ? next : this.seek(-1, 1, holds);
  }

  /**
   * The next step whose instruction, engine, source line or tensors contain a text; after the last one the first again.
   * @param {number} step
   * @param {string} text
   */
  find(step, text) {
    const wanted = text.trim().toLowerCase();
    if (!wanted) return -1;
    const has = (/** @type {string} */ words) => words.toLowerCase().includes(wanted);
    const plans = this.plans.map((p) => has(p.instruction) || has(p.engine));
    const sites = this.sites.map((s) => has(this.files[s.file]?.lines.slice(s.line - 1, s.last).join("\n") ?? ""));
    const tensors = this.allocations.map((a) => has(a.label));
    const holds = (/** @type {number} */ other) => {
      if (String(other) === wanted || plans[this.plan[other]] || sites[this.site[other] - 1]) return true;
      for (let i = this.touchFirst[other]; i < this.touchFirst[other + 1]; i++) if (tensors[this.touch[i] >> 1]) return true;
      return false;
    };
    const next = this.seek(step, 1, holds);
    return next >= 0 ? next : this.seek(-1, 1, holds);
  }

  /**
   * What was found fault with at a step.
   * @param {number} step
   */
  faults(step) {
    return this.findings.filter((f) => f.step === step);
  }
}

/**
 * Where something begins to hold in a list, in which it holds from there on.
 * @template T
 * @param {T[]} items
 * @param {(item: T) => boolean} holds
 */
function firstWhere(items, holds) {
  let low = 0;
  let high = items.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (holds(items[middle])) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** @param {any} sent */
function unpackTime(sent) {
  const time = {
    lanes: /** @type {string[]} */ (sent.lanes),
    lane: unpack(sent.lane),
    start: unpack(sent.start),
    held: unpack(sent.held),
    after: unpack(sent.after),
    blocker: unpack(sent.blocker),
    waited: unpack(sent.waited),
    total: /** @type {number} */ (sent.total),
  };
  return { ...time, critical: criticalPath(time) };
}

/**
 * The chain of steps that decides the total: from the last result back to what each step waited for.
 * @param {{ start: ArrayLike<number>, held: ArrayLike<number>, after: ArrayLike<number>, blocker: ArrayLike<number> }} time
 */
export function criticalPath({ start, held, after, blocker }) {
  let step = -1;
  let latest = -1;
  for (let i = 0; i < start.length; i++) {
    const done = start[i] + held[i] + after[i];
    if (done > latest) [latest, step] = [done, i];
  }
  const path = [];
  for (; step >= 0; step = blocker[step]) path.push(step);
  return Int32Array.from(path.reverse());
}
