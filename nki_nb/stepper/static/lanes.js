// @ts-check
/** The timeline as sorted arrays for each lane, so that any window of it is found by binary search. */

/**
 * @typedef {object} Lane
 * @property {string} name
 * @property {Int32Array} steps in the order of their start
 * @property {Float64Array} start
 * @property {Float64Array} end
 * @property {Float64Array} busy time that the lane was busy before each of its instructions
 * @property {Float64Array} critical the same, of instructions on the critical path
 */

/**
 * The lanes that a program uses.
 * @param {{ lanes: string[], lane: ArrayLike<number>, start: ArrayLike<number>, held: ArrayLike<number>, critical: ArrayLike<number> }} time
 * @returns {Lane[]}
 */
export function buildLanes({ lanes, lane, start, held, critical }) {
  const count = lane.length;
  const onPath = new Uint8Array(count);
  for (let i = 0; i < critical.length; i++) onPath[critical[i]] = 1;
  const sizes = new Int32Array(lanes.length);
  for (let step = 0; step < count; step++) sizes[lane[step]]++;
  const made = lanes.map((name, i) => emptyLane(name, sizes[i]));
  const filled = new Int32Array(lanes.length);
  for (let step = 0; step < count; step++) {
    const { steps, start: from, end, busy, critical: path } = made[lane[step]];
    const i = filled[lane[step]]++;
    steps[i] = step;
    from[i] = start[step];
    end[i] = start[step] + held[step];
    busy[i + 1] = busy[i] + held[step];
    path[i + 1] = path[i] + (onPath[step] ? held[step] : 0);
  }
  return made.filter((l) => l.steps.length);
}

/** @param {string} name @param {number} size @returns {Lane} */
function emptyLane(name, size) {
  const numbers = () => new Float64Array(size);
  return { name, steps: new Int32Array(size), start: numbers(), end: numbers(), busy: new Float64Array(size + 1), critical: new Float64Array(size + 1) };
}

/**
 * How many instructions of a lane start before (or at) a time.
 * @param {Float64Array} start
 * @param {number} time
 */
export function startedBy(start, time) {
  let low = 0;
  let high = start.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (start[middle] <= time) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * The busy time of a lane up to a time, of all instructions and of those on the critical path.
 * @param {Lane} lane
 * @param {number} time
 * @returns {[number, number]}
 */
export function busyBy({ start, end, busy, critical }, time) {
  const n = startedBy(start, time);
  if (n === 0) return [0, 0];
  const over = Math.max(0, end[n - 1] - time);
  return [busy[n] - over, critical[n] - (critical[n] > critical[n - 1] ? over : 0)];
}

/**
 * For each pixel of a window, the share of its time that the lane is busy, and the share on the critical path.
 * @param {Lane} lane
 * @param {number} from
 * @param {number} to
 * @param {number} pixels
 */
export function coverage(lane, from, to, pixels) {
  const all = new Float32Array(pixels);
  const path = new Float32Array(pixels);
  const each = (to - from) / pixels;
  let [busy, critical] = busyBy(lane, from);
  for (let x = 0; x < pixels; x++) {
    const [nextBusy, nextCritical] = busyBy(lane, from + (x + 1) * each);
    all[x] = (nextBusy - busy) / each;
    path[x] = (nextCritical - critical) / each;
    busy = nextBusy;
    critical = nextCritical;
  }
  return { all, path };
}

/**
 * The instruction of a lane at a time, or the nearest; its step.
 * @param {Lane} lane
 * @param {number} time
 */
export function stepAt({ steps, start, end }, time) {
  const n = startedBy(start, time);
  if (n === 0) return steps[0];
  if (n < steps.length && time > end[n - 1] && start[n] - time < time - end[n - 1]) return steps[n];
  return steps[n - 1];
}
