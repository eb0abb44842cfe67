// @ts-check
/** Making elements. Text always goes in as text, so that nobody's tensor name can become markup. */

const SVG = "http://www.w3.org/2000/svg";

/**
 * An HTML element.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Record<string, any>} [attributes] `class`, `aria-…`, …; functions become event listeners
 * @param {...(Node | string)} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  decorate(made, attributes);
  made.append(...children);
  return made;
}

/**
 * An SVG element.
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...(Node | string)} children
 * @returns {SVGElement}
 */
export function shape(tag, attributes = {}, ...children) {
  const made = /** @type {SVGElement} */ (document.createElementNS(SVG, tag));
  decorate(made, attributes);
  made.append(...children);
  return made;
}

/**
 * @param {Element} made
 * @param {Record<string, any>} attributes
 */
function decorate(made, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") made.addEventListener(name, value);
    else made.setAttribute(name, String(value));
  }
}

/**
 * A pane: a box with a heading and a note at its right.
 * @param {string} name of its class
 * @param {string} title
 */
export function pane(name, title) {
  const heading = element("h3", {}, title);
  const note = element("span", { class: "note" });
  const body = element("div", { class: "body" });
  const root = element("section", { class: `pane ${name}`, "aria-label": title }, element("header", {}, heading, note), body);
  return { root, heading, note, body };
}
