// @ts-check
/** Arrays that came once, by name: tiles look alike from step to step, and what is here need not come again. */

const MOST_BYTES = 32_000_000;
const MOST_NAMES = 128;

/** Thrown where an answer names an array that was dropped since it was asked. */
export class Dropped extends Error {}

export class Held {
  constructor() {
    /** @type {Map<string, ArrayBuffer>} oldest use first */
    this.arrays = new Map();
    this.size = 0;
  }

  /** The names of what is here, for the one who answers. */
  names() {
    return [...this.arrays.keys()];
  }

  /**
   * The bytes of an array that is named: those that came with it, or those that are here.
   * @param {{ name: string, at?: number }} named
   * @param {DataView[]} buffers
   */
  bytes({ name, at }, buffers) {
    const known = this.arrays.get(name);
    if (known) this.arrays.delete(name);
    else if (at === undefined) throw new Dropped(name);
    const bytes = known ?? copyOf(buffers[/** @type {number} */ (at)]);
    this.arrays.set(name, bytes);
    if (!known) this.size += bytes.byteLength;
    this.shrink();
    return bytes;
  }

  shrink() {
    for (const [name, bytes] of this.arrays) {
      if ((this.size <= MOST_BYTES && this.arrays.size <= MOST_NAMES) || this.arrays.size === 1) return;
      this.arrays.delete(name);
      this.size -= bytes.byteLength;
    }
  }
}

/** Bytes of their own: a view would keep the whole message. @param {DataView} view */
function copyOf({ buffer, byteOffset, byteLength }) {
  return /** @type {ArrayBuffer} */ (buffer.slice(byteOffset, byteOffset + byteLength));
}
