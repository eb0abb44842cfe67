import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { unpack, unpackMatrix } from "./static/packing.js";

const example = JSON.parse(readFileSync("example.json", "utf8"));

test("an array comes out as it went in", () => {
  assert.deepEqual([...unpack(example.packed)], [0.5, -1, Math.fround(3e38)]);
});

test("float32 needs no bits of its own", () => {
  const matrix = unpackMatrix(example.operand);
  assert.equal(matrix.values.length, matrix.shownRows * matrix.shownColumns);
  assert.equal(new Float32Array(matrix.bits.buffer)[7], matrix.values[7]);
});

test("an empty array", () => {
  assert.equal(unpack({ kind: "u4", shape: [0], data: "" }).length, 0);
});
