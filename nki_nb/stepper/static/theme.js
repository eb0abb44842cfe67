// @ts-check
/** Light or dark: as JupyterLab says where there is one, else as the reader's system says. */

/** @returns {"light" | "dark"} */
function theme() {
  const { jpThemeLight } = document.body.dataset;
  if (jpThemeLight !== undefined) return jpThemeLight === "false" ? "dark" : "light";
  if (document.body.classList.contains("vscode-dark")) return "dark";
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

/**
 * Keep `data-theme` of an element right; the answer stops it.
 * @param {HTMLElement} root hears `themechange`
 */
export function followTheme(root) {
  const apply = () => {
    const now = theme();
    if (root.dataset.theme === now) return;
    root.dataset.theme = now;
    for (const hearer of [root, ...root.querySelectorAll(".heatmap")]) hearer.dispatchEvent(new CustomEvent("themechange"));
  };
  apply();
  const observer = new MutationObserver(apply);
  observer.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "class"] });
  const query = matchMedia("(prefers-color-scheme: dark)");
  query.addEventListener("change", apply);
  return () => {
    observer.disconnect();
    query.removeEventListener("change", apply);
  };
}
