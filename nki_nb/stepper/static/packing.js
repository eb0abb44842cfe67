// @ts-check
/** Arrays as Python packs them: little-endian bytes, beside a message or in base64 in a page, with their type and shape. */

const KINDS = { f4: Float32Array, f8: Float64Array, i4: Int32Array, u1: Uint8Array, u2: Uint16Array, u4: Uint32Array };

/**
 * @typedef {import("./held.js").Held} Held
 * @typedef {{ kind: keyof typeof KINDS, shape: number[], data: string | DataView | ArrayBuffer }} Packed
 * @typedef {Float32Array | Float64Array | Int32Array | Uint8Array | Uint16Array | Uint32Array} Numbers
 */

/**
 * The typed array in a packed one.
 * @param {Packed} packed
 * @returns {Numbers}
 */
export function unpack(packed) {
  if (packed.data instanceof ArrayBuffer) return new KINDS[packed.kind](packed.data);
  if (packed.data instanceof DataView) {
    const { buffer, byteOffset, byteLength } = packed.data;
    return new KINDS[packed.kind](/** @type {ArrayBuffer} */ (buffer.slice(byteOffset, byteOffset + byteLength)));
  }
  const text = atob(packed.data);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = text.charCodeAt(i);
  return new KINDS[packed.kind](bytes.buffer);
}

/**
 * Put the bytes that came beside a message, or that were held, where it has their numbers and names.
 * @param {any} answer
 * @param {DataView[]} buffers
 * @param {Held} held
 */
export function attach(answer, buffers, held) {
  if (!answer || typeof answer !== "object") return answer;
  if (!(answer.kind in KINDS && answer.shape)) for (const part of Object.values(answer)) attach(part, buffers, held);
  else if (typeof answer.data === "number") answer.data = buffers[answer.data];
  else answer.data = held.bytes(answer.data, buffers);
  return answer;
}

/**
 * @typedef {object} Matrix The values of a tensor as rows by columns; of a large one the first rows.
 * @property {string} dtype
 * @property {number[]} shape of the tensor
 * @property {number} rows of the whole
 * @property {number} columns of the whole
 * @property {number} shownRows
 * @property {number} shownColumns
 * @property {Float32Array} values
 * @property {Numbers} bits
 * @property {number} width bytes of an element
 */

/**
 * A matrix as Python sends it, unpacked.
 * @param {any} sent
 * @returns {Matrix}
 */
export function unpackMatrix(sent) {
  const values = /** @type {Float32Array} */ (unpack(sent.values));
  return {
    dtype: sent.dtype,
    shape: sent.shape,
    rows: sent.rows,
    columns: sent.columns,
    shownRows: sent.shown[0],
    shownColumns: sent.shown[1],
    values,
    bits: sent.bits ? unpack(sent.bits) : new Uint32Array(values.buffer),
    width: sent.width,
  };
}

/**
 * One value exactly: what is shown of large integers is rounded to float32, their bits are not.
 * @param {Matrix} matrix
 * @param {number} i
 */
export function valueAt({ values, bits, dtype }, i) {
  if (dtype === "int32") return bits[i] | 0;
  return dtype === "uint32" ? bits[i] : values[i];
}
