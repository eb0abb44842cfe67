import assert from "node:assert/strict";
import test from "node:test";
import { Dropped, Held } from "./static/held.js";
import { LeftOut, LiveSource, requestKey, StaticSource } from "./static/source.js";

class Model {
  sent = [];
  on(event, callback) { this.callback = callback; }
  send(message) { this.sent.push(message); }
  answer(id, answer) { this.callback({ id, answer }); }
}

test("answers go to the question with their number", async () => {
  const model = new Model();
  const source = new LiveSource(model);
  const [first, second] = [source.ask({ kind: "step", step: 1 }), source.ask({ kind: "step", step: 2 })];
  model.answer(1, "two");
  model.answer(0, "one");
  assert.deepEqual(await Promise.all([first, second]), ["one", "two"]);
});

test("what was answered is not asked again", async () => {
  const model = new Model();
  const source = new LiveSource(model);
  const first = source.ask({ kind: "step", step: 1 });
  model.answer(0, "one");
  await first;
  assert.equal(await source.ask({ step: 1, kind: "step" }), "one");
  assert.equal(model.sent.length, 1);
});

test("what a step's answer holds besides is not asked again, and bytes come beside it", async () => {
  const model = new Model();
  const source = new LiveSource(model);
  const asked = source.ask({ kind: "step", step: 3 });
  const matrix = { dtype: "float32", shape: [1, 1], rows: 1, columns: 1, shown: [1, 1], width: 4, bits: null, values: { kind: "f4", shape: [1, 1], data: 0 } };
  const answer = { index: 3, operands: [], values: [{ operand: 0, after: true, matrix }, { operand: 1, after: false, matrix: null }] };
  model.callback({ id: 0, answer }, [new DataView(new Uint8Array([9, 9, 0, 0, 64, 64]).buffer, 2)]);
  await asked;
  assert.deepEqual([...(await source.ask({ kind: "operand", step: 3, operand: 0, after: true })).values], [3]);
  assert.equal(await source.ask({ kind: "operand", step: 3, operand: 1, after: false }), null);
  assert.equal(model.sent.length, 1);
});

/** @param {{ name: string, at?: number }} data */
const named = (data) => ({ dtype: "float32", shape: [1, 2], rows: 1, columns: 2, shown: [1, 2], width: 4, bits: null, values: { kind: "f4", shape: [1, 2], data } });
const bytes = (...values) => new DataView(Float32Array.of(...values).buffer);

test("a named array is held, told of, and need not come again", async () => {
  const model = new Model();
  const source = new LiveSource(model);
  const first = source.ask({ kind: "operand", step: 0 });
  assert.deepEqual(model.sent[0].held, []);
  model.callback({ id: 0, answer: named({ name: "a", at: 0 }) }, [bytes(3, 4)]);
  await first;
  const second = source.ask({ kind: "operand", step: 1 });
  assert.deepEqual(model.sent[1].held, ["a"]);
  model.callback({ id: 1, answer: named({ name: "a" }) }, []);
  assert.deepEqual([...(await second).values], [3, 4]);
});

test("an array that was dropped meanwhile is asked for again", async () => {
  const model = new Model();
  const source = new LiveSource(model);
  const asked = source.ask({ kind: "operand", step: 0 });
  model.callback({ id: 0, answer: named({ name: "gone" }) }, []);
  assert.deepEqual(model.sent[1], { id: 1, request: { kind: "operand", step: 0 }, held: [] });
  model.callback({ id: 1, answer: named({ name: "gone", at: 0 }) }, [bytes(5, 6)]);
  assert.deepEqual([...(await asked).values], [5, 6]);
});

test("what is held is bounded, oldest use first", () => {
  const held = new Held();
  for (const name of ["a", "b"]) held.bytes({ name, at: 0 }, [new DataView(new ArrayBuffer(15e6))]);
  held.bytes({ name: "a" }, []);
  held.bytes({ name: "c", at: 0 }, [new DataView(new ArrayBuffer(15e6))]);
  assert.deepEqual(held.names(), ["a", "c"]);
  assert.throws(() => held.bytes({ name: "b" }, []), Dropped);
});

test("errors reject", async () => {
  const model = new Model();
  const asked = new LiveSource(model).ask({ kind: "?" });
  model.callback({ id: 0, error: "ValueError: unknown" });
  await assert.rejects(asked, /unknown/);
});

test("what nobody waits for is not sent", async () => {
  const model = new Model();
  const source = new LiveSource(model);
  const stop = new AbortController();
  const asked = Array.from({ length: 6 }, (_, step) => source.ask({ kind: "step", step }, step >= 4 ? stop.signal : undefined));
  assert.equal(model.sent.length, 4);
  stop.abort();
  model.answer(0, "zero");
  await assert.rejects(asked[4], { name: "AbortError" });
  await assert.rejects(asked[5], { name: "AbortError" });
  assert.equal(model.sent.length, 4);
});

test("the same question is asked once, and whoever still waits hears the answer", async () => {
  const model = new Model();
  const source = new LiveSource(model);
  const stop = new AbortController();
  const first = source.ask({ kind: "step", step: 1 }, stop.signal);
  const second = source.ask({ kind: "step", step: 1 });
  assert.equal(model.sent.length, 1);
  stop.abort();
  await assert.rejects(first, { name: "AbortError" });
  model.answer(0, "one");
  assert.equal(await second, "one");
});

test("a question that was given up and asked again before it was sent is sent", async () => {
  const model = new Model();
  const source = new LiveSource(model);
  const busy = [0, 1, 2, 3].map((step) => source.ask({ kind: "step", step }));
  const stop = new AbortController();
  const given = source.ask({ kind: "step", step: 9 }, stop.signal);
  stop.abort();
  await assert.rejects(given, { name: "AbortError" });
  const again = source.ask({ kind: "step", step: 9 });
  model.answer(0, "zero");
  assert.equal(model.sent.at(-1).request.step, 9);
  model.answer(4, "nine");
  assert.equal(await again, "nine");
  assert.equal(await busy[0], "zero");
});

test("a saved page shows a tensor as the last operand that covered it did", async () => {
  const operand = (number, writes, columns) => ({ number, writes, allocation: 0, offset: 0, dtype: "uint8", shape: [1, columns] });
  const matrix = (value) => ({ dtype: "uint8", shape: [1, 4], rows: 1, columns: 4, shown: [1, 4], width: 1, bits: null,
    values: { kind: "f4", shape: [4], data: btoa(String.fromCharCode(...new Uint8Array(Float32Array.of(value, 0, 0, 0).buffer))) } });
  const source = new StaticSource({
    overview: { allocations: [{ shape: [1, 4], dtype: "uint8", pinned: false, born: 0 }] },
    steps: { 0: { operands: [operand(0, true, 4)] }, 1: { operands: [] }, 2: { operands: [operand(1, true, 2)] }, 3: { operands: [] } },
    values: { "0.0.before": 0, "0.0.after": 1 }, matrices: [matrix(5), matrix(7)],
  });
  const first = async (step) => (await source.ask({ kind: "tensor", allocation: 0, step })).values[0];
  assert.equal(await first(0), 5);
  assert.equal(await first(1), 7);
  assert.equal(await first(2), 7);
  await assert.rejects(first(3), LeftOut);
});

test("a saved page says what it does not hold", async () => {
  const source = new StaticSource({ overview: { steps: 1 }, steps: { 0: "details" }, texts: ["a"], values: { "0.0.before": null }, matrices: [] });
  assert.equal(await source.ask({ kind: "step", step: 0 }), "details");
  assert.equal(await source.ask({ kind: "operand", step: 0, operand: 0, after: false }), null);
  assert.deepEqual(await source.ask({ kind: "texts", start: 0, stop: 64 }), ["a"]);
  for (const request of [{ kind: "step", step: 1 }, { kind: "first_nan" }, { kind: "?" }]) {
    await assert.rejects(source.ask(request), LeftOut);
  }
});

test("keys do not depend on the order of names", () => {
  assert.equal(requestKey({ b: 1, a: 2 }), requestKey({ a: 2, b: 1 }));
});
