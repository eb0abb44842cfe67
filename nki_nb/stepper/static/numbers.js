// @ts-check
/** Numbers as a person reads them. */

/**
 * A value with the digits its data type has.
 * @param {number} value
 * @param {string} dtype
 */
export function formatValue(value, dtype) {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "+inf" : "−inf";
  if (/int|bool/.test(dtype)) return minus(String(value));
  const digits = dtype === "float32" || dtype === "tfloat32" ? 7 : 4;
  return minus(String(Number(value.toPrecision(digits))));
}

/**
 * A bit pattern, as 0x3F695183.
 * @param {number} bits
 * @param {number} width bytes
 */
export function formatBits(bits, width) {
  return "0x" + (bits >>> 0).toString(16).toUpperCase().padStart(Math.min(width, 4) * 2, "0");
}

/**
 * ns as ns, µs or ms.
 * @param {number} ns
 */
export function formatTime(ns) {
  if (Math.abs(ns) < 1000) return `${Math.round(ns)} ns`;
  if (Math.abs(ns) < 1e6) return `${(ns / 1e3).toFixed(1)} µs`;
  return `${(ns / 1e6).toFixed(2)} ms`;
}

/**
 * Bytes with the unit that fits.
 * @param {number} size
 */
export function formatBytes(size) {
  if (size >= 1 << 20) return `${trim(size / (1 << 20))} MiB`;
  if (size >= 1 << 10) return `${trim(size / (1 << 10))} KiB`;
  return size === 1 ? "1 byte" : `${size} bytes`;
}

/**
 * Bytes exactly where they are few: 1040 bytes and 1 KiB are not the same transfer.
 * @param {number} size
 */
export function formatFewBytes(size) {
  return size > 1 && size < 10 << 10 ? `${size} bytes` : formatBytes(size);
}

/** @param {number} value */
function trim(value) {
  return String(Number(value.toFixed(1)));
}

/** @param {string} text */
function minus(text) {
  return text.replace("-", "−");
}

/** @param {readonly number[]} shape */
export function formatShape(shape) {
  return shape.join(" × ");
}

/**
 * A count with its noun.
 * @param {number} count
 * @param {string} noun
 */
export function plural(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}
