import assert from "node:assert/strict";
import test from "node:test";
import { bands, rowBytes } from "./static/regions.js";

const rectangles = (shape, box) => bands(shape, box).map((b) => [b.top, b.bottom, b.left, b.right]);

test("a box of a matrix is one rectangle", () => {
  assert.deepEqual(rectangles([8, 10], [[2, 3], [4, 9]]), [[2, 4, 4, 10]]);
});

test("a vector is one row", () => {
  assert.deepEqual(rectangles([10], [[4, 5]]), [[0, 1, 4, 6]]);
});

test("a box of a three-dimensional tensor is a band for each outer index", () => {
  assert.deepEqual(rectangles([3, 4, 5], [[1, 2], [0, 1], [0, 4]]), [[4, 6, 0, 5], [8, 10, 0, 5]]);
  assert.deepEqual(rectangles([3, 4, 5], [[1, 2], [0, 3], [2, 2]]), [[4, 12, 2, 3]]);
});

test("bytes of a partition that a box touches", () => {
  const tile = { shape: [128, 4, 8], row_bytes: 128 };
  assert.deepEqual(rowBytes(tile, [[0, 127], [0, 3], [0, 7]]), { first: 0, last: 128 });
  assert.deepEqual(rowBytes(tile, [[0, 127], [1, 1], [2, 3]]), { first: 40, last: 48 });
});
