import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { buildLanes, busyBy, coverage, startedBy, stepAt } from "./static/lanes.js";
import { Overview } from "./static/overview.js";

const time = { lanes: ["tensor", "vector", "scalar"], lane: [0, 2, 0, 0], start: [0, 5, 10, 30], held: [10, 2, 10, 5], critical: [0, 2] };
const [tensor, scalar] = buildLanes(time);

test("lanes that nothing uses are left out", () => {
  assert.deepEqual(buildLanes(time).map((l) => l.name), ["tensor", "scalar"]);
  assert.deepEqual([...tensor.steps], [0, 2, 3]);
  assert.deepEqual([...scalar.end], [7]);
});

test("binary search", () => {
  assert.deepEqual([-1, 0, 9, 10, 99].map((t) => startedBy(tensor.start, t)), [0, 1, 1, 2, 3]);
});

test("busy time, and that of the critical path", () => {
  assert.deepEqual(busyBy(tensor, 0), [0, 0]);
  assert.deepEqual(busyBy(tensor, 15), [15, 15]);
  assert.deepEqual(busyBy(tensor, 33), [23, 20]);
  assert.deepEqual(busyBy(tensor, 99), [25, 20]);
});

test("coverage of pixels", () => {
  const { all, path } = coverage(tensor, 0, 40, 4);
  assert.deepEqual([...all], [1, 1, 0, 0.5]);
  assert.deepEqual([...path], [1, 1, 0, 0]);
});

test("the step under the pointer, or the nearest", () => {
  assert.deepEqual([3, 12, 21, 29, 99].map((t) => stepAt(tensor, t)), [0, 2, 2, 3, 3]);
});

test("every step of a run is in a lane, in the order of its start", () => {
  const run = new Overview(JSON.parse(readFileSync("example.json", "utf8")).overview);
  const lanes = buildLanes(run.time);
  assert.equal(lanes.reduce((n, l) => n + l.steps.length, 0), run.steps);
  for (const lane of lanes) for (let i = 1; i < lane.steps.length; i++) assert.ok(lane.start[i] >= lane.end[i - 1] - 1e-3);
});

test("a frame of 300 000 instructions is a matter of milliseconds", () => {
  const n = 300_000;
  const long = { lanes: ["tensor"], lane: new Uint8Array(n), start: Float64Array.from({ length: n }, (_, i) => i * 10), held: new Float32Array(n).fill(7), critical: [] };
  const [lane] = buildLanes(long);
  coverage(lane, 0, n * 10, 1200);
  const began = performance.now();
  coverage(lane, 0, n * 10, 1200);
  assert.ok(performance.now() - began < 16);
});
