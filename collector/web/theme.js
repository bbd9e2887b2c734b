// Follows the browser's choice of light or dark until the user switches. This is a plain script, so that it
// runs before anything is drawn.
(() => {
  const prefers = matchMedia("(prefers-color-scheme: light)");
  const kept = () => {
    try { return localStorage.getItem("xpu-top-theme"); } catch { return null; }
  };
  const apply = () => {
    document.documentElement.dataset.theme = kept() ?? (prefers.matches ? "light" : "dark");
    dispatchEvent(new Event("theme"));
  };
  window.switchTheme = () => {
    const next = document.documentElement.dataset.theme === "light" ? "dark" : "light";
    try { localStorage.setItem("xpu-top-theme", next); } catch { /* Without storage, the choice lasts as long as the page. */ }
    document.documentElement.dataset.theme = next;
    dispatchEvent(new Event("theme"));
  };
  prefers.addEventListener("change", apply);
  apply();
})();
