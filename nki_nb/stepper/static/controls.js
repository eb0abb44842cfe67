// @ts-check
/** The bar above the panes, and the keys. */

import { element, shape } from "./dom.js";

/** @typedef {import("./viewer.js").Viewer} Viewer */

const SPEEDS = [1, 2, 5, 20];

/** Drawn, because not every font has these signs. */
const ICONS = {
  first: "M3 3v10M13 3v10L5 8z", back: "M11 3v10L4 8z", forward: "M5 3v10l7-5z", last: "M13 3v10M3 3v10l8-5z",
  play: "M5 3v10l7-5z", pause: "M5 3v10M11 3v10",
};

/**
 * Buttons, the slider, jumps and search.
 * @param {Viewer} viewer
 */
export function controls(viewer) {
  const { overview, store } = viewer;
  const last = Math.max(overview.steps - 1, 0);
  const play = button("play", "Play or pause (space)", () => viewer.play(!viewer.state.playing), "play");
  play.prepend(icon("play"));
  const slider = element("input", {
    type: "range", class: "slider", min: 0, max: last, value: 0, "aria-label": "Step", tabindex: -1,
    input: (/** @type {Event} */ event) => viewer.go(Number(/** @type {HTMLInputElement} */ (event.target).value)),
  });
  const where = element("span", { class: "where", "aria-live": "polite" });
  const message = element("span", { class: "message", role: "status" });
  const root = element("div", { class: "controls", role: "toolbar", "aria-label": "Stepping" },
    iconButton("first", "First step (Home)", () => viewer.go(0)),
    iconButton("back", "Step back (←)", () => viewer.move(-1)),
    iconButton("forward", "Step (→)", () => viewer.move(1)),
    iconButton("last", "Last step (End)", () => viewer.go(last)),
    play, speed(viewer), ...cores(viewer), slider, where, message, jumps(viewer), search(viewer));
  store.subscribe((state, changed) => {
    if (changed.has("step")) {
      const { line } = overview.placeOf(state.step);
      const core = overview.cores.length > 1 ? ` · ${overview.cores[overview.planOf(state.step).core]}` : "";
      slider.value = String(state.step);
      slider.style.setProperty("--done", `${last ? (100 * state.step) / last : 0}%`);
      slider.setAttribute("aria-valuetext", `step ${state.step} of ${last}`);
      where.textContent = `step ${state.step.toLocaleString("en")} of ${last.toLocaleString("en")}${core}${line ? ` · line ${line}` : ""}`;
    }
    if (changed.has("playing")) play.replaceChildren(...(state.playing ? [icon("pause"), "pause"] : [icon("play"), "play"]));
    if (changed.has("message")) message.textContent = state.message;
  });
  return root;
}

/**
 * @param {string} label
 * @param {string} title
 * @param {() => void} act
 * @param {string} name
 */
function button(label, title, act, name) {
  const words = title.replace(/ \(.*/, "");
  return element("button", { type: "button", class: `button ${name}`, title, "aria-label": words, click: act }, label);
}

/**
 * @param {keyof typeof ICONS} name
 * @param {string} title
 * @param {() => void} act
 */
function iconButton(name, title, act) {
  const made = button("", title, act, name);
  made.append(icon(name));
  return made;
}

/** @param {keyof typeof ICONS} name */
function icon(name) {
  return shape("svg", { viewBox: "0 0 16 16", class: "icon", "aria-hidden": "true" }, shape("path", { d: ICONS[name] }));
}

/** @param {Viewer} viewer */
function speed(viewer) {
  const options = SPEEDS.map((n) => element("option", { value: n, selected: n === viewer.state.speed }, `${n}/s`));
  return element("select", {
    class: "speed", title: "Steps in a second", "aria-label": "Steps in a second",
    change: (/** @type {Event} */ event) => viewer.setSpeed(Number(/** @type {HTMLSelectElement} */ (event.target).value)),
  }, ...options);
}

/** Whose steps are walked through, where there are several cores. @param {Viewer} viewer */
function cores(viewer) {
  const { cores: names } = viewer.overview;
  if (names.length < 2) return [];
  const options = [names.length === 2 ? "both cores" : "all", ...names].map((name, i) => element("option", { value: i - 1 }, name));
  const change = (/** @type {Event} */ event) => {
    const chosen = Number(/** @type {HTMLSelectElement} */ (event.target).value);
    viewer.choose(chosen < 0 ? null : chosen);
    viewer.root.focus({ preventScroll: true }); // the keys go on stepping
  };
  return [element("select", { class: "speed cores", title: "Whose steps to walk through", "aria-label": "Core", change }, ...options)];
}

/** @param {Viewer} viewer */
function jumps(viewer) {
  const { failure, findings } = viewer.overview;
  const made = [
    button("engine", "Next instruction of this engine (e)", () => viewer.sameEngine(1), "jump"),
    button("tile", "Next instruction that touches the selected tile, or the one written here (t)", () => viewer.sameTile(1), "jump"),
    button("line", "Next instruction of this line (l)", () => viewer.sameLine(), "jump"),
    button("NaN", "First step that makes a NaN (n)", () => viewer.firstNan(), "jump"),
  ];
  if (failure || findings.length) made.push(button("failure", "Where something was found wrong (f)", () => viewer.failure(), "jump"));
  return element("span", { class: "jumps" }, "next", ...made);
}

/** @param {Viewer} viewer */
function search(viewer) {
  return element("input", {
    type: "search", class: "search", placeholder: "search  /", "aria-label": "Search instructions, lines and tensors",
    keydown: (/** @type {KeyboardEvent} */ event) => {
      const field = /** @type {HTMLInputElement} */ (event.target);
      event.stopPropagation();
      if (event.key === "Enter") viewer.jump(viewer.overview.find(viewer.state.step, field.value), `no ${field.value}`);
      else if (event.key === "Escape") viewer.root.focus({ preventScroll: true });
    },
  });
}

/**
 * What a key does; undefined for keys that are somebody else's.
 * @param {Viewer} viewer
 * @param {string} key
 * @param {boolean} shift
 * @returns {(() => void) | undefined}
 */
export function keyAction(viewer, key, shift) {
  const { step, playing } = viewer.state;
  const direction = shift ? -1 : 1;
  /** @type {Record<string, () => void>} */
  const actions = {
    ArrowRight: () => (shift ? viewer.sameEngine(1) : viewer.move(1)),
    ArrowLeft: () => (shift ? viewer.sameEngine(-1) : viewer.move(-1)),
    ArrowDown: () => viewer.move(1),
    ArrowUp: () => viewer.move(-1),
    Home: () => viewer.go(0),
    End: () => viewer.go(viewer.overview.steps - 1),
    " ": () => viewer.play(!playing),
    e: () => viewer.sameEngine(direction),
    t: () => viewer.sameTile(direction),
    l: () => viewer.sameLine(),
    n: () => viewer.firstNan(),
    f: () => viewer.failure(),
    "/": () => /** @type {HTMLElement} */ (viewer.root.querySelector(".search"))?.focus(),
  };
  return actions[key.length === 1 ? key.toLowerCase() : key];
}

/**
 * Listen for keys while the viewer has the focus. The notebook around it does not hear them.
 * @param {Viewer} viewer
 */
export function keyboard(viewer) {
  viewer.root.addEventListener("keydown", (event) => {
    const inField = /^(INPUT|SELECT|TEXTAREA)$/.test(/** @type {HTMLElement} */ (event.target).tagName);
    const onButton = event.key === " " && /** @type {HTMLElement} */ (event.target).closest("button, [role=button]");
    if (event.ctrlKey || event.metaKey || event.altKey || inField || onButton) return;
    const act = keyAction(viewer, event.key, event.shiftKey);
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  });
}
