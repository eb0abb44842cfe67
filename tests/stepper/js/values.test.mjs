import assert from "node:assert/strict";
import test from "node:test";
import { changes, magnitude, palette, shade, shrink } from "./static/colours.js";
import { formatBits, formatBytes, formatTime, formatValue } from "./static/numbers.js";

test("colours diverge from the ground", () => {
  const colours = palette([255, 255, 255]);
  const of = (value) => [...new Uint8Array(Uint32Array.of(colours[shade(value, 1)]).buffer)];
  assert.deepEqual(of(0), [255, 255, 255, 255]);
  assert.deepEqual(of(-2), [0, 114, 178, 255]);
  assert.deepEqual(of(Infinity), [213, 94, 0, 255]);
  assert.deepEqual(of(NaN), [170, 51, 119, 255]);
  assert.equal(shade(3, 0), shade(0, 1));
});

test("infinity and NaN do not count for the scale", () => {
  assert.equal(magnitude([1, -3, Infinity, NaN]), 3);
});

test("of several elements the one farthest from zero shows, or NaN", () => {
  const { cells, tall, wide } = shrink([1, -2, 0, 0.5, NaN, 9, 0, 0], 2, 4, 1, 2);
  assert.deepEqual([tall, wide], [1, 2]);
  assert.ok(Number.isNaN(cells[0]));
  assert.equal(cells[1], 0.5);
});

test("changed elements, by their bits", () => {
  assert.deepEqual(changes([1, 2, 3, 4, 5, 6], [1, 9, 3, 4, 9, 6], 3), { count: 2, top: 0, left: 1, bottom: 2, right: 2 });
  assert.equal(changes([1], [1], 1).count, 0);
});

test("numbers as text", () => {
  assert.equal(formatValue(0.1, "float32"), "0.1");
  assert.equal(formatValue(-1 / 3, "bfloat16"), "−0.3333");
  assert.equal(formatValue(NaN, "float32"), "NaN");
  assert.equal(formatValue(7, "int8"), "7");
  assert.equal(formatBits(0x3f695183, 4), "0x3F695183");
  assert.equal(formatBits(0x3f80, 2), "0x3F80");
  assert.equal(formatTime(1500), "1.5 µs");
  assert.equal(formatBytes(2048), "2 KiB");
});
