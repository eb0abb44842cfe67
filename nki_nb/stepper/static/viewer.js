// @ts-check
/** What all panes share: the run, the state, and the ways to move through it. */

import { initialState, Store } from "./store.js";

/** @typedef {import("./overview.js").Overview} Overview */
/** @typedef {import("./source.js").Source} Source */

const AHEAD_MS = 60;
/** After which the next step is asked for: the picture of this one comes first. */

export class Viewer {
  /**
   * @param {HTMLElement} root
   * @param {Overview} overview
   * @param {Source} source
   */
  constructor(root, overview, source) {
    this.root = root;
    this.overview = overview;
    this.source = source;
    this.store = new Store(initialState());
    this.asking = new AbortController();
    this.timer = 0;
  }

  get state() {
    return this.store.state;
  }

  // -- moving --------------------------------------------------------------------------------------------------------

  /**
   * Look at a step. What is known at once shows at once; its details are asked for and come later.
   * @param {number} step
   */
  go(step) {
    const last = this.overview.steps - 1;
    const target = Math.min(Math.max(step, 0), last);
    if (target === this.state.step || last < 0) return;
    const next = target + Math.sign(target - this.state.step);
    this.asking.abort();
    this.asking = new AbortController();
    this.store.set({ step: target, message: "", detail: null, trouble: "" });
    this.ask(this.details(target)).then((detail) => this.show(detail, next), (error) => this.missing(error));
  }

  /** One step on or back, among those of the chosen core. @param {number} direction */
  move(direction) {
    const { step, core } = this.state;
    const to = this.overview.ofCore(step, direction, core);
    if (to >= 0) this.go(to);
  }

  /** Walk through the steps of one core, or of all. @param {number | null} core */
  choose(core) {
    this.store.set({ core });
    const { step } = this.state;
    if (core === null || step < 0 || this.overview.planOf(step).core === core) return;
    const next = this.overview.ofCore(step, 1, core);
    this.go(next >= 0 ? next : this.overview.ofCore(step, -1, core));
  }

  /** The question for a step's details. @param {number} step */
  details(step) {
    const { element } = this.state;
    return element ? { kind: "step", step, element } : { kind: "step", step };
  }

  /**
   * Show the details of the step, then ask for those of the one that is likely to come next.
   * @param {any} detail
   * @param {number} next
   */
  show(detail, next) {
    this.store.set({ detail });
    if (next < 0 || next >= this.overview.steps) return;
    const { signal } = this.asking;
    setTimeout(() => {
      if (!signal.aborted) this.source.ask(this.details(next), signal).catch(() => {}); // whoever goes there hears of it
    }, AHEAD_MS);
  }

  /**
   * Ask something about the step looked at: forgotten when the step changes before the answer comes.
   * @param {import("./source.js").Request} request
   */
  ask(request) {
    return this.source.ask(request, this.asking.signal);
  }

  /**
   * Go to a step that was looked for, or say that there is none.
   * @param {number} step -1 for none
   * @param {string} otherwise
   */
  jump(step, otherwise) {
    if (step < 0) this.store.set({ message: otherwise });
    else this.go(step);
  }

  /** The details of the step cannot be had. @param {Error} error */
  missing(error) {
    if (error.name !== "AbortError") this.store.set({ trouble: error.message });
  }

  /**
   * Say what went wrong, unless nobody waits for it any more.
   * @param {Error} error
   */
  explain(error) {
    if (error.name !== "AbortError") this.store.set({ message: error.message });
  }

  // -- jumps ---------------------------------------------------------------------------------------------------------

  /** @param {number} direction */
  sameEngine(direction) {
    const { engine } = this.overview.planOf(this.state.step);
    this.jump(this.overview.sameEngine(this.state.step, direction), `no further ${engine} instruction`);
  }

  /** @param {number} direction */
  sameTile(direction) {
    const tile = this.state.tile ?? this.written();
    if (tile === null) return;
    const { label } = this.overview.allocations[tile];
    this.store.set({ tile });
    this.jump(this.overview.touching(this.state.step, tile, direction), `nothing further touches ${label}`);
  }

  written() {
    const { reads, writes } = this.overview.touched(this.state.step);
    return [...writes, ...reads][0] ?? null;
  }

  sameLine() {
    const place = this.overview.placeOf(this.state.step);
    this.jump(this.overview.onLine(this.state.step, place.line, place.file), "no instruction on this line");
  }

  failure() {
    const { failure, findings, steps } = this.overview;
    const fault = [failure, ...findings].find((f) => f && f.step !== null);
    if (fault) this.go(Math.min(fault.step, steps - 1));
    else this.store.set({ message: "nothing was found fault with" });
  }

  async firstNan() {
    this.store.set({ message: "looking for the first NaN…" });
    try {
      const step = await this.source.ask({ kind: "first_nan" });
      if (step === this.state.step) this.store.set({ message: "this is the first step that makes a NaN" });
      else this.jump(step ?? -1, "no step makes a NaN");
    } catch (error) {
      this.explain(/** @type {Error} */ (error));
    }
  }

  // -- playing -------------------------------------------------------------------------------------------------------

  /** @param {boolean} playing */
  play(playing) {
    clearInterval(this.timer);
    const last = this.overview.steps - 1;
    if (playing && this.state.step === last) this.go(0);
    if (playing) {
      this.timer = window.setInterval(() => {
        const before = this.state.step;
        if (before < last) this.move(1);
        if (this.state.step === before) this.play(false);
      }, 1000 / this.state.speed);
    }
    this.store.set({ playing });
  }

  /** @param {number} speed */
  setSpeed(speed) {
    this.store.set({ speed });
    if (this.state.playing) this.play(true);
  }
}
