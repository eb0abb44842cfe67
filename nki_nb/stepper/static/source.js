// @ts-check
/** Where answers come from: a live kernel, or what a saved page carries. Both answer `ask(request, signal)`. */

import { Dropped, Held } from "./held.js";
import { attach, unpack, unpackMatrix } from "./packing.js";

/**
 * @typedef {{ kind: string, [argument: string]: any }} Request
 * @typedef {{ ask(request: Request, signal?: AbortSignal): Promise<any> }} Source
 * @typedef {(event: string, callback: Function) => void} Listening
 * @typedef {{ send(content: any): void, on: Listening, off: Listening }} Model
 */

/** Thrown where a saved page was not given what is asked for. */
export class LeftOut extends Error {}

/** @param {Request} request */
export function requestKey(request) {
  return Object.keys(request).sort().map((name) => `${name}=${request[name]}`).join("&");
}

/**
 * @typedef {{ resolve: Function, reject: Function, signal?: AbortSignal }} Waiter
 * @typedef {{ request: Request, key: string, waiters: Waiter[] }} Question
 */

const MOST_KEPT = 32_000_000;
const MOST_SENT = 4;

/** Asks the kernel over the widget's messages, a few requests at a time; forgets what nobody waits for any more. */
export class LiveSource {
  /**
   * @param {Model} model
   * @param {number} first number of a question: all views of a widget hear all answers, and must tell theirs
   */
  constructor(model, first = 0) {
    this.model = model;
    this.next = first;
    /** @type {Map<string, any>} */
    this.kept = new Map();
    this.size = 0;
    this.held = new Held();
    /** @type {Map<number, Question>} */
    this.sent = new Map();
    /** @type {Question[]} */
    this.waiting = [];
    this.hear = (/** @type {any} */ message, /** @type {DataView[]} */ buffers) => this.receive(message, buffers);
    this.closed = false;
    model.on("msg:custom", this.hear);
  }

  /** Neither ask nor listen any more. */
  close() {
    this.closed = true;
    this.model.off("msg:custom", this.hear);
    for (const question of [...this.sent.values(), ...this.waiting.splice(0)]) settle(question, "reject", aborted());
    this.sent.clear();
  }

  /**
   * @param {Request} request
   * @param {AbortSignal} [signal]
   */
  ask(request, signal) {
    const key = requestKey(request);
    if (this.kept.has(key)) return Promise.resolve(this.kept.get(key));
    if (this.closed) return Promise.reject(aborted());
    return new Promise((resolve, reject) => {
      const waiter = { resolve, reject, signal };
      signal?.addEventListener("abort", () => reject(aborted()), { once: true });
      const asked = [...this.sent.values(), ...this.waiting].find((question) => question.key === key);
      if (asked) asked.waiters.push(waiter);
      else this.waiting.push({ request, key, waiters: [waiter] });
      this.pump();
    });
  }

  pump() {
    while (this.sent.size < MOST_SENT && this.waiting.length) {
      const question = /** @type {Question} */ (this.waiting.shift());
      if (question.waiters.some(({ signal }) => !signal?.aborted)) this.send(question, this.held.names());
    }
  }

  /** @param {Question} question @param {string[]} held */
  send(question, held) {
    const id = this.next++;
    this.sent.set(id, question);
    this.model.send({ id, request: question.request, held });
  }

  /** @param {any} message @param {DataView[]} buffers */
  receive(message, buffers) {
    const asked = this.sent.get(message?.id);
    if (!asked) return;
    this.sent.delete(message.id);
    if (message.error !== undefined) settle(asked, "reject", new Error(message.error));
    else this.take(asked, message.answer, buffers);
    this.pump();
  }

  /** @param {Question} asked @param {any} came @param {DataView[]} buffers */
  take(asked, came, buffers) {
    try {
      const answer = opened(attach(came, buffers, this.held));
      this.keep(asked.key, answer);
      this.keepParts(answer);
      settle(asked, "resolve", answer);
    } catch (error) {
      if (error instanceof Dropped) this.send(asked, []);
      else settle(asked, "reject", error);
    }
  }

  /** What a step's answer holds of further answers, under the questions for them. @param {any} answer */
  keepParts(answer) {
    if (!answer?.operands || !answer.values) return;
    const step = answer.index;
    for (const { operand, after, matrix } of answer.values) this.keep(requestKey({ kind: "operand", step, operand, after }), opened(matrix));
    if (answer.element) {
      const { row, column, answer: parts } = answer.element;
      this.keep(requestKey({ kind: "contributions", step, row, column }), opened(parts));
    }
    delete answer.values;
  }

  /** @param {string} key @param {any} answer */
  keep(key, answer) {
    this.kept.set(key, answer);
    this.size += sizeOf(answer);
    for (const [oldest, dropped] of this.kept) {
      if (this.size <= MOST_KEPT) break;
      this.kept.delete(oldest);
      this.size -= sizeOf(dropped);
    }
  }
}

/** @param {Question} question @param {"resolve" | "reject"} how @param {any} value */
function settle(question, how, value) {
  for (const waiter of question.waiters) waiter[how](value);
}

/** Answers from the data of a saved page. */
export class StaticSource {
  /** @param {any} saved `{ overview, steps, texts, values, matrices, first_nan, left_out }` */
  constructor(saved) {
    this.saved = saved;
    /** What the page does not hold, in words; empty when it holds everything. */
    this.leftOut = /** @type {string} */ (saved.left_out ?? "");
  }

  /** @param {Request} request */
  async ask(request) {
    const { saved } = this;
    switch (request.kind) {
      case "overview": return saved.overview;
      case "step": return found(saved.steps[request.step], "this step's details");
      case "texts": return saved.texts.slice(request.start, request.stop);
      case "first_nan": return found(saved.first_nan, "the search for NaN");
      case "contributions": return this.contributions(request);
      case "tensor": return this.tensor(request);
      case "operand": return this.matrix(`${request.step}.${request.operand}.${request.after ? "after" : "before"}`);
      default: throw new LeftOut("only a live kernel can show this: this is a saved page");
    }
  }

  /** @param {string} key */
  matrix(key) {
    const number = this.saved.values[key];
    if (number === null) return null;
    return unpackMatrix(this.saved.matrices[found(number, "these values")]);
  }

  /**
   * A whole tensor before a step: what the last operand that covered it showed.
   * @param {Request} request
   */
  tensor({ allocation, step }) {
    const { shape, dtype, pinned, born } = this.saved.overview.allocations[allocation];
    const covers = (/** @type {any} */ o) => o.offset === 0 && o.dtype === dtype && String(o.shape) === String(shape);
    for (let i = step; i >= Math.max(born, 0) && !pinned && this.saved.steps[i]; i--) {
      const mine = this.saved.steps[i].operands.filter((/** @type {any} */ o) => o.allocation === allocation);
      const writes = i < step ? mine.filter((/** @type {any} */ o) => o.writes) : [];
      const whole = (writes.length ? writes : mine).find(covers);
      if (whole) return this.matrix(`${i}.${whole.number}.${writes.length ? "after" : "before"}`);
      if (writes.length) break;
    }
    return this.matrix(`input.${allocation}`);
  }

  /**
   * What each matmul of a group adds to an element, from the values after each.
   * @param {Request} request
   */
  contributions(request) {
    const detail = found(this.saved.steps[request.step], "this step's details");
    const target = detail.operands.find((/** @type {any} */ o) => o.writes).number;
    const steps = /** @type {number[]} */ (detail.matmul.group);
    let before = 0;
    const added = [];
    const sum = [];
    for (const step of steps) {
      const after = this.matrix(`${step}.${target}.after`);
      const value = after ? after.values[request.row * after.shownColumns + request.column] : NaN;
      added.push(value - before);
      sum.push((before = value));
    }
    return { steps, overwrite: steps.map((_, i) => i === 0), added, sum };
  }
}

/**
 * An answer with its arrays unpacked.
 * @param {any} answer
 */
function opened(answer) {
  if (answer?.values?.data !== undefined && answer.shown) return unpackMatrix(answer);
  if (answer?.added?.data !== undefined) return { ...answer, added: [...unpack(answer.added)], sum: [...unpack(answer.sum)] };
  return answer;
}

/** About how many bytes an answer takes. @param {any} answer */
function sizeOf(answer) {
  return 1000 + (answer?.values?.byteLength ?? 0) + (answer?.bits?.byteLength ?? 0);
}

/** @param {any} value @param {string} what */
function found(value, what) {
  if (value === undefined) throw new LeftOut(`this saved page does not hold ${what}`);
  return value;
}

function aborted() {
  return new DOMException("nobody waits for it", "AbortError");
}
