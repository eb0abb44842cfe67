// @ts-check
/** The kernel's source, with the line that issued the current instruction. A click on a line steps to what it issues. */

import { element, pane } from "./dom.js";

/** @typedef {import("./viewer.js").Viewer} Viewer */

/** @param {Viewer} viewer */
export function sourcePane(viewer) {
  const { overview, store } = viewer;
  const { root, note, body } = pane("source", "Source");
  body.tabIndex = -1;
  /** @type {HTMLElement[]} */
  let rows = [];
  let shown = -1;
  const live = new Set(overview.sites.map((s) => `${s.file}:${s.line}`));

  /** @param {number} file */
  function show(file) {
    shown = file;
    const { name, lines } = overview.files[file] ?? { name: "", lines: [] };
    note.textContent = name;
    rows = lines.map((text, i) => line(i + 1, text, live.has(`${file}:${i + 1}`)));
    body.replaceChildren(...(lines.length ? rows : [element("p", { class: "empty" }, "The source is not to be had.")]));
    for (const fault of [overview.failure, ...overview.findings]) {
      if (fault?.line && file === 0) rows[fault.line - 1]?.classList.add("fault");
    }
  }

  /** @param {number} number @param {string} text @param {boolean} issues */
  function line(number, text, issues) {
    const jump = () => viewer.jump(overview.onLine(viewer.state.step, number, shown), `line ${number} issues no instruction`);
    return element("div", { class: issues ? "line issues" : "line", "data-line": number, click: jump },
      element("span", { class: "number" }, String(number)), element("code", {}, text || " "));
  }

  /** @param {number} step */
  function mark(step) {
    const place = overview.placeOf(step);
    if (place.file !== shown) show(place.file);
    body.querySelectorAll(".now").forEach((row) => {
      row.classList.remove("now");
      row.removeAttribute("aria-current");
    });
    for (const row of rows.slice(Math.max(place.line - 1, 0), place.last)) row.classList.add("now");
    rows[place.line - 1]?.setAttribute("aria-current", "true");
    reveal(body, rows[place.line - 1]);
  }

  show(0);
  const fault = overview.failure?.line;
  if (!overview.steps && fault) reveal(body, rows[fault - 1]);
  store.subscribe((state, changed) => {
    if (changed.has("step")) mark(state.step);
  });
  return root;
}

/**
 * Scroll a row of a list (which it is placed in) into the middle when it is not in sight, without moving the page.
 * @param {HTMLElement} list
 * @param {HTMLElement | undefined} row
 */
export function reveal(list, row) {
  if (!row) return;
  const top = row.offsetTop;
  const room = list.clientHeight - row.offsetHeight * 2;
  if (top < list.scrollTop + row.offsetHeight || top > list.scrollTop + room) list.scrollTop = top - list.clientHeight / 2;
}
