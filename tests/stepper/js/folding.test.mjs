import assert from "node:assert/strict";
import test from "node:test";
import { Rows } from "./static/folding.js";

const shown = (rows) => Array.from({ length: rows.count }, (_, i) => {
  const row = rows.at(i);
  return row.kind === "fold" ? `×${row.times}` : row.step;
});

test("small loops are not folded", () => {
  assert.deepEqual(shown(new Rows(6, [[1, 2, 2]])), [0, 1, 2, 3, 4, 5]);
});

test("a loop shows the round that the current step is in", () => {
  const rows = new Rows(16, [[2, 3, 4]]);
  assert.deepEqual(shown(rows), [0, 1, "×4", 14, 15]);
  rows.follow(9);
  assert.deepEqual(shown(rows), [0, 1, "×4", 8, 9, 10, 14, 15]);
  assert.equal(rows.rowOf(9), 4);
  assert.equal(rows.rowOf(3), 2);
});

test("an open loop shows all its rounds", () => {
  const rows = new Rows(16, [[2, 3, 4]]);
  rows.toggle(2);
  assert.equal(rows.count, 17);
  for (let step = 0; step < 16; step++) assert.equal(rows.at(rows.rowOf(step)).step, step);
  rows.toggle(2);
  assert.equal(rows.count, 5);
});

test("300 000 steps take no time", () => {
  const rows = new Rows(300_002, [[1, 3, 100_000]]);
  rows.toggle(1);
  const began = performance.now();
  for (let i = 0; i < 1000; i++) rows.at(Math.floor((i * rows.count) / 1000));
  rows.follow(200_000);
  assert.ok(performance.now() - began < 100);
});
