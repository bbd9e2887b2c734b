// Builds elements. Text from a job becomes text nodes, never markup.

export function h(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Replaces children only if their content has changed, so that links keep the focus, and an open list stays open. */
export function renew(element, shown, children) {
  const key = JSON.stringify(shown);
  if (element.dataset.shown === key) return;
  element.dataset.shown = key;
  element.replaceChildren(...children());
}

export const byId = (id) => document.getElementById(id);

/** A table. A column is `[title, value of a row, whether it is a number]`. */
export function table(columns, rows, { rowClass, onRow, name } = {}) {
  const kind = (column) => (column[2] ? "number" : null);
  return h("div", { class: "wide" },
    h("table", { class: name },
      h("thead", {}, h("tr", {}, columns.map((column) => h("th", { class: kind(column) }, column[0])))),
      h("tbody", {}, rows.map((row) =>
        h("tr", { class: rowClass?.(row) || null, onclick: onRow && (() => onRow(row)) },
          columns.map((column) => h("td", { class: kind(column) }, column[1](row) ?? "·")))))));
}
