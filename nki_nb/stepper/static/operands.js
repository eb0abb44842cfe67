// @ts-check
/** The values of a step's operands. */

/** @typedef {import("./viewer.js").Viewer} Viewer */
/** @typedef {import("./packing.js").Matrix} Matrix */

/**
 * @param {Viewer} viewer
 * @param {any} detail
 * @param {any} operand
 * @param {boolean} [after]
 * @returns {Promise<Matrix | null>}
 */
export function valuesOf(viewer, detail, operand, after = false) {
  return viewer.ask({ kind: "operand", step: detail.index, operand: operand.number, after });
}

/**
 * The operands that are tensors.
 * @param {any} detail
 * @returns {any[]}
 */
export function tensorsOf(detail) {
  return detail.operands.filter((/** @type {any} */ o) => o.allocation !== undefined);
}

/** @param {any} detail @param {string} name */
export function operandNamed(detail, name) {
  return detail.operands.find((/** @type {any} */ o) => o.name === name && o.allocation !== undefined);
}
