// @ts-check
/** The engines, with Okabe and Ito's colours, which colour-blind readers can tell apart. */

/** @type {Record<string, { name: string, fill: string, ink: string }>} */
export const ENGINES = {
  tensor: { name: "Tensor", fill: "#0072b2", ink: "#ffffff" },
  vector: { name: "Vector", fill: "#009e73", ink: "#ffffff" },
  scalar: { name: "Scalar", fill: "#e69f00", ink: "#1f2430" },
  gpsimd: { name: "GpSimd", fill: "#56b4e9", ink: "#1f2430" },
  dma: { name: "DMA", fill: "#cc79a7", ink: "#1f2430" },
  sync: { name: "Sync", fill: "#999999", ink: "#1f2430" },
};

/** @param {string} name */
export function engine(name) {
  return ENGINES[name] ?? { name, fill: "#999999", ink: "#1f2430" };
}

/**
 * The engine that a lane of the timeline belongs to, and the lane's name as shown, after its core's number where there are several.
 * @param {string} lane
 */
export function laneEngine(lane) {
  const [, core, name] = /** @type {RegExpExecArray} */ (/^(?:(\d+): )?(.*)$/.exec(lane));
  const found = name.startsWith("DMA") ? { ...engine("dma"), name } : engine(name);
  return core === undefined ? found : { ...found, name: `${core} ${found.name}` };
}
