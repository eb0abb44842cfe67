import assert from "node:assert/strict";
import test from "node:test";
import { patternWords, sample, sampleSizes } from "./static/patterns.js";

const orders = (found) => Object.fromEntries(found.cells.map((c) => [`${c.row},${c.column}`, c.orders]));

test("a copy takes one element after another", () => {
  const found = sample([[700, 128], [1, 512]], 256 * 700, 700);
  assert.deepEqual(found.rows, [256, 257, 258, 259, 260]);
  assert.deepEqual(orders(found)["256,3"], [3]);
  assert.deepEqual(orders(found)["257,0"], [512]);
  assert.ok(found.more);
});

test("a transpose takes the source across its rows", () => {
  const found = sample([[40, 32], [1, 40]], 0, 40, [1, 0]);
  assert.deepEqual(orders(found)["0,0"], [0]);
  assert.deepEqual(orders(found)["1,0"], [1]);
  assert.deepEqual(orders(found)["0,1"], [32]);
});

test("a broadcast takes one element several times", () => {
  const found = sample([[0, 3], [1, 2]], 0, 2);
  assert.deepEqual(orders(found), { "0,0": [0, 2, 4], "0,1": [1, 3, 5] });
  assert.ok(!found.more);
});

test("words", () => {
  assert.equal(patternWords([[700, 128], [1, 512]]), "128 rows 700 apart × 512 in a row");
  assert.equal(patternWords([[0, 16], [1, 1]]), "the same one 16 times");
  assert.equal(patternWords([[1, 1]]), "one element");
});

test("sizes of a sample", () => {
  assert.deepEqual(sampleSizes([9, 9, 9, 9]), [2, 2, 5, 7]);
  assert.deepEqual(sampleSizes([128, 1]), [7, 1]);
});
