import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { Overview } from "./static/overview.js";

const example = JSON.parse(readFileSync("example.json", "utf8"));
const run = new Overview(example.overview);
const softmax = new Overview(example.softmax);
const label = (tile) => run.allocations[tile].label;

test("what a step is", () => {
  assert.equal(run.planOf(6).instruction, "nc_matmul");
  assert.equal(run.placeOf(6).line, example.step.line);
  const { reads, writes } = run.touched(6);
  assert.deepEqual([...writes].map(label), ["acc"]);
  assert.deepEqual([...reads].map(label).sort(), ["weights", "x"]);
  assert.equal(run.words(9), "y ← acc");
});

test("tiles alive at a step, and others near in time", () => {
  assert.deepEqual(run.alive(6).map((a) => a.label).sort(), ["acc", "weights", "weights", "weights", "x"]);
  const absent = run.absent(6, 40);
  assert.ok(absent.every((a) => a.last < 6 || a.born > 6));
  assert.equal(run.absent(6, 1).length, 1);
});

test("jumps", () => {
  assert.equal(run.sameEngine(4), 6);
  assert.equal(run.sameEngine(6, -1), 4);
  assert.equal(run.sameEngine(run.steps - 1), -1);
  const acc = [...run.touched(6).writes][0];
  assert.equal(run.touching(6, acc), 8);
  assert.equal(run.touching(8, acc), 9);
  const { line, file } = run.placeOf(9);
  assert.equal(run.onLine(0, line, file), 9);
  assert.equal(run.onLine(run.steps - 1, line, file), 9);
  assert.equal(run.onLine(0, 1, file), -1);
});

test("search finds instructions, engines, lines and tensors, and goes round", () => {
  assert.equal(run.find(0, "tensor_copy"), 9);
  assert.equal(run.find(0, " VECTOR "), 9);
  assert.equal(run.find(run.steps - 1, "tensor_copy"), 9);
  assert.equal(run.find(0, "src=acc"), 9);
  assert.equal(softmax.find(0, "share"), 3);
  assert.equal(run.find(0, "nowhere"), -1);
  assert.equal(run.find(0, ""), -1);
});

test("what was ever written", () => {
  const acc = [...run.touched(4).writes][0];
  assert.equal(run.written(4, acc), false);
  assert.equal(run.written(5, acc), true);
  assert.equal(run.written(0, run.allocations.find((a) => a.role === "input").id), true);
});

test("the critical path is the one that Python finds", () => {
  assert.deepEqual([...run.time.critical], example.critical);
});
