// @ts-check
/** The timeline: a lane for each engine and DMA queue. Wheel to zoom, drag to pan, click to step. All of it an estimate. */

import { element, pane } from "./dom.js";
import { laneEngine } from "./engines.js";
import { buildLanes, coverage, startedBy, stepAt } from "./lanes.js";
import { formatTime } from "./numbers.js";

/** @typedef {import("./viewer.js").Viewer} Viewer */
/** @typedef {import("./lanes.js").Lane} Lane */

const LABELS = 66;
const TOP = 20;
const LANE = 19;
const SQUEEZED = 12;
const MOST_TALL = 10;
const BAR = 0.72;
const DRAG = 3;
const SHORTEST = 1;

/** @param {Viewer} viewer */
export function timePane(viewer) {
  const { root, note, body } = pane("time", "Time (estimate)");
  const timeline = new Timeline(viewer, note);
  body.append(timeline.canvas, timeline.status);
  new ResizeObserver(() => timeline.resize()).observe(body);
  viewer.root.addEventListener("themechange", () => timeline.redraw());
  viewer.store.subscribe((_, changed) => {
    if (changed.has("step")) timeline.follow();
  });
  return root;
}

class Timeline {
  /** @param {Viewer} viewer @param {HTMLElement} note */
  constructor(viewer, note) {
    this.viewer = viewer;
    this.note = note;
    this.time = viewer.overview.time;
    this.lanes = buildLanes(this.time);
    this.onPath = new Set(this.time.critical);
    this.laneOf = new Map(this.lanes.map((lane, i) => [lane.name, i]));
    this.total = Math.max(this.time.total, SHORTEST);
    this.tall = this.lanes.length > MOST_TALL ? SQUEEZED : LANE;
    this.from = 0;
    this.to = this.total;
    this.pending = 0;
    this.canvas = element("canvas", { tabindex: 0, role: "img", class: "timeline",
      "aria-label": "Timeline, an estimate: + and − zoom, 0 shows all; the arrow keys step" });
    this.status = element("p", { class: "visually-hidden", "aria-live": "polite" });
    this.strip = document.createElement("canvas");
    this.listen();
  }

  // -- window --------------------------------------------------------------------------------------------------------

  get width() {
    return Math.max(50, this.canvas.clientWidth - LABELS - 8);
  }

  /** @param {number} time */
  x(time) {
    return LABELS + ((time - this.from) / (this.to - this.from)) * this.width;
  }

  /** @param {number} x */
  at(x) {
    return this.from + ((x - LABELS) / this.width) * (this.to - this.from);
  }

  /** @param {number} from @param {number} to */
  show(from, to) {
    const size = Math.min(Math.max(to - from, SHORTEST), this.total);
    this.from = Math.min(Math.max(from, 0), this.total - size);
    this.to = this.from + size;
    this.redraw();
  }

  /** @param {number} factor below 1 to see less @param {number} centre */
  zoom(factor, centre) {
    this.show(centre - (centre - this.from) * factor, centre + (this.to - centre) * factor);
  }

  /** Keep the current step in sight. */
  follow() {
    const { step } = this.viewer.state;
    const start = this.time.start[step];
    const end = start + this.time.held[step];
    const size = this.to - this.from;
    if (start < this.from || end > this.to) this.show(start - size / 3, start - size / 3 + size);
    else this.redraw();
    this.status.textContent = this.words(step);
  }

  resize() {
    this.canvas.style.height = `${TOP + this.lanes.length * this.tall + 6}px`;
    this.redraw();
  }

  redraw() {
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => {
      this.pending = 0;
      this.draw();
    });
  }

  // -- input ---------------------------------------------------------------------------------------------------------

  listen() {
    const { canvas } = this;
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        const move = ((event.deltaX || event.deltaY) / this.width) * (this.to - this.from);
        this.show(this.from + move, this.to + move);
      } else this.zoom(Math.exp(event.deltaY * 0.002), this.at(event.offsetX));
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.drag(event));
    canvas.addEventListener("keydown", (event) => {
      const middle = this.time.start[this.viewer.state.step] ?? 0;
      if (event.key === "+" || event.key === "=") this.zoom(0.5, middle);
      else if (event.key === "-") this.zoom(2, middle);
      else if (event.key === "0") this.show(0, this.total);
    });
  }

  /** @param {PointerEvent} down */
  drag(down) {
    const { canvas, from, to } = this;
    let moved = false;
    canvas.setPointerCapture(down.pointerId);
    const move = (/** @type {PointerEvent} */ event) => {
      const away = event.clientX - down.clientX;
      moved ||= Math.abs(away) > DRAG;
      if (moved) this.show(from - (away / this.width) * (to - from), to - (away / this.width) * (to - from));
    };
    const up = (/** @type {PointerEvent} */ event) => {
      canvas.removeEventListener("pointermove", move);
      if (!moved) this.select(event.offsetX, event.offsetY);
    };
    canvas.addEventListener("pointermove", move);
    canvas.addEventListener("pointerup", up, { once: true });
  }

  /** @param {number} x @param {number} y */
  select(x, y) {
    const lane = this.lanes[Math.floor((y - TOP) / this.tall)];
    if (lane && x >= LABELS) this.viewer.go(stepAt(lane, this.at(x)));
  }

  // -- drawing -------------------------------------------------------------------------------------------------------

  draw() {
    const began = performance.now();
    const { canvas } = this;
    const ratio = window.devicePixelRatio || 1;
    const width = Math.round(canvas.clientWidth * ratio);
    const height = Math.round(canvas.clientHeight * ratio);
    if (!width || !height) return;
    if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
    const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    const style = getComputedStyle(canvas);
    this.ink = style.color;
    this.rule = style.getPropertyValue("--rule").trim();
    this.muted = style.getPropertyValue("--muted").trim();
    this.warm = style.getPropertyValue("--warm").trim();
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
    context.font = `11px ${style.fontFamily}`;
    this.lanes.forEach((lane, i) => this.drawLane(context, lane, TOP + i * this.tall));
    this.drawCursor(context);
    this.note.textContent = `drag to pan · wheel to zoom · ${formatTime(this.from)} … ${formatTime(this.to)} of ${formatTime(this.total)} · underlined: critical path`;
    canvas.dataset.frame = (performance.now() - began).toFixed(2);
  }

  /** @param {CanvasRenderingContext2D} context @param {Lane} lane @param {number} top */
  drawLane(context, lane, top) {
    const { name } = laneEngine(lane.name);
    context.fillStyle = this.ink ?? "";
    context.textAlign = "left";
    context.fillText(name, 0, top + this.tall * BAR - 2);
    context.fillStyle = this.rule ?? "";
    context.fillRect(LABELS, top + this.tall - 2, this.width, 1);
    if (this.beginsCore(lane)) context.fillRect(0, top - 3, LABELS + this.width, 1.5);
    const first = Math.max(0, startedBy(lane.start, this.from) - 1);
    const last = startedBy(lane.start, this.to);
    if (last - first <= this.width / 2) for (let i = first; i < last; i++) this.drawBar(context, lane, i, top);
    else this.drawCoverage(context, lane, top);
  }

  /** Whether a lane is the first of another core than the lane above. @param {Lane} lane */
  beginsCore(lane) {
    const above = this.lanes[this.lanes.indexOf(lane) - 1];
    return above !== undefined && above.name.split(": ")[0] !== lane.name.split(": ")[0] && lane.name.includes(": ");
  }

  /** @param {CanvasRenderingContext2D} context @param {Lane} lane @param {number} i @param {number} top */
  drawBar(context, lane, i, top) {
    const { fill, ink } = laneEngine(lane.name);
    const left = Math.max(this.x(lane.start[i]), LABELS);
    const right = Math.min(this.x(lane.end[i]), LABELS + this.width);
    if (right < LABELS) return;
    const width = Math.max(right - left - (right - left > 4 ? 1 : 0), 1);
    const tall = this.tall * BAR;
    const step = lane.steps[i];
    const later = step > this.viewer.state.step;
    context.globalAlpha = later ? 0.45 : 1;
    context.fillStyle = fill;
    context.fillRect(left, top, width, tall);
    context.globalAlpha = 1;
    if (this.onPath.has(step)) {
      context.fillStyle = this.ink ?? "";
      context.fillRect(left, top + tall, width, 1.5);
    }
    if (width > 24 && this.tall === LANE) {
      context.fillStyle = later ? this.ink ?? "" : ink;
      context.textAlign = "center";
      context.fillText(String(step), left + width / 2, top + tall - 3.5);
    }
  }

  /** Of more instructions than there are pixels: how busy each pixel is. @param {CanvasRenderingContext2D} context @param {Lane} lane @param {number} top */
  drawCoverage(context, lane, top) {
    const pixels = Math.round(this.width);
    const { all, path } = coverage(lane, this.from, this.to, pixels);
    const strip = this.strip;
    [strip.width, strip.height] = [pixels, 2];
    const brush = /** @type {CanvasRenderingContext2D} */ (strip.getContext("2d", { willReadFrequently: true }));
    const image = brush.createImageData(pixels, 2);
    const bar = rgb(laneEngine(lane.name).fill);
    const ink = rgb(this.ink ?? "");
    for (let x = 0; x < pixels; x++) {
      image.data.set([...bar, 255 * (all[x] > 0 ? 0.15 + 0.85 * Math.min(1, all[x]) : 0)], x * 4);
      image.data.set([...ink, 255 * Math.min(1, path[x])], (pixels + x) * 4);
    }
    brush.putImageData(image, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(strip, 0, 0, pixels, 1, LABELS, top, pixels, this.tall * BAR);
    context.drawImage(strip, 0, 1, pixels, 1, LABELS, top + this.tall * BAR, pixels, 1.5);
  }

  /** The current step: a line at its start, a frame around it, an arrow from what it waited for. @param {CanvasRenderingContext2D} context */
  drawCursor(context) {
    const { step } = this.viewer.state;
    if (step < 0) return;
    const { start, held } = this.time;
    const x = this.x(start[step]);
    if (x < LABELS - 1 || x > LABELS + this.width + 1) return;
    const top = this.top(step);
    context.strokeStyle = context.fillStyle = this.warm ?? "";
    context.lineWidth = 1.5;
    line(context, x, TOP - 6, x, TOP + this.lanes.length * this.tall);
    context.lineWidth = 2;
    context.strokeStyle = this.ink ?? "";
    context.strokeRect(x, top, Math.max(2, this.x(start[step] + held[step]) - x), this.tall * BAR);
    this.drawArrow(context, step, x, top);
    const right = x > LABELS + this.width * 0.6;
    context.textAlign = right ? "right" : "left";
    context.fillStyle = this.warm ?? "";
    context.fillText(this.words(step), x + (right ? -5 : 5), TOP - 8);
  }

  /** @param {CanvasRenderingContext2D} context @param {number} step @param {number} x @param {number} top */
  drawArrow(context, step, x, top) {
    const blocker = this.time.blocker[step];
    if (blocker < 0) return;
    const { start, held, after } = this.time;
    const ended = Math.min(start[blocker] + held[blocker], start[step]);
    const fromX = Math.max(LABELS, this.x(ended));
    const fromY = this.top(blocker) + (this.tall * BAR) / 2;
    const toY = top + (this.tall * BAR) / 2;
    context.strokeStyle = context.fillStyle = this.ink ?? "";
    context.lineWidth = 1.2;
    if (after[blocker] > 0) context.setLineDash([3, 2]);
    line(context, fromX, fromY, x, toY);
    context.setLineDash([]);
    const angle = Math.atan2(toY - fromY, x - fromX);
    context.beginPath();
    context.moveTo(x, toY);
    for (const turn of [2.7, -2.7]) context.lineTo(x + 7 * Math.cos(angle + turn), toY + 7 * Math.sin(angle + turn));
    context.fill();
  }

  /** @param {number} step */
  top(step) {
    return TOP + (this.laneOf.get(this.time.lanes[this.time.lane[step]]) ?? 0) * this.tall;
  }

  /** @param {number} step */
  words(step) {
    const { start, held, waited, blocker } = this.time;
    const when = formatTime(start[step]);
    const by = blocker[step];
    if (by < 0 || waited[step] < 0.5) return `${when} · did not wait`;
    const { engine, instruction } = this.viewer.overview.planOf(by);
    if (start[by] + held[by] > start[step]) return `${when} · issued after ${instruction} ${by}: transfers are issued one at a time`;
    return `${when} · waited ${formatTime(waited[step])} for ${instruction} ${by} (${laneEngine(engine).name})`;
  }
}

/** @param {CanvasRenderingContext2D} context @param {number} x1 @param {number} y1 @param {number} x2 @param {number} y2 */
function line(context, x1, y1, x2, y2) {
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x2, y2);
  context.stroke();
}

/** @param {string} colour `#rrggbb` or `rgb(…)` @returns {[number, number, number]} */
function rgb(colour) {
  const hex = /^#(..)(..)(..)$/.exec(colour);
  const parts = hex ? hex.slice(1).map((part) => parseInt(part, 16)) : (colour.match(/[\d.]+/g) ?? ["0", "0", "0"]).map(Number);
  return [parts[0], parts[1], parts[2]];
}
