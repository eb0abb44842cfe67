// @ts-check
/** The state of a viewer, and who wants to know when it changes. */

/**
 * @typedef {object} State
 * @property {number} step the instruction looked at
 * @property {number | null} tile the tensor that is selected
 * @property {[number, number] | null} element row and column chosen in a matrix
 * @property {any} detail what is known of the step, once it has come
 * @property {string} trouble why its details cannot be had
 * @property {boolean} playing
 * @property {number} speed steps in a second
 * @property {number | null} core whose steps are walked through; all cores' where none is chosen
 * @property {string} message one line for the reader
 */

/** @typedef {(state: State, changed: Set<string>) => void} Listener */

export class Store {
  /** @param {State} state */
  constructor(state) {
    this.state = state;
    /** @type {Set<Listener>} */
    this.listeners = new Set();
  }

  /**
   * Change some of the state; those who listen hear what really changed.
   * @param {Partial<State>} patch
   */
  set(patch) {
    const changed = new Set();
    for (const [name, value] of Object.entries(patch)) {
      if (/** @type {any} */ (this.state)[name] !== value) changed.add(name);
    }
    if (!changed.size) return;
    this.state = { ...this.state, ...patch };
    for (const listener of this.listeners) listener(this.state, changed);
  }

  /**
   * Call `listener` after each change; the answer stops it.
   * @param {Listener} listener
   */
  subscribe(listener) {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  }
}

/** @returns {State} */
export function initialState() {
  return { step: -1, tile: null, element: null, detail: null, trouble: "", playing: false, speed: 2, core: null, message: "" };
}
