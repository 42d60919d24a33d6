// Creates elements. Text is always set as text, never parsed; only charts arrive as markup.

export function h(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

// The elements of a chart. The server renders charts (specclient/reports/page/charts.py) and escapes their texts.
export const chart = (markup) => [...new DOMParser().parseFromString(markup, "text/html").body.childNodes];

export const at = (id) => document.getElementById(id);
export const fill = (node, ...children) => node.replaceChildren(...children.flat());
export const show = (node, on) => { node.hidden = !on; };

const integer = new Intl.NumberFormat("en");
export const count = (value) => integer.format(value);

// A number to three digits, as on the command line.
export function digits(value) {
  if (!value) return "0";
  return value >= 100 ? integer.format(Math.round(value)) : String(Number(value.toPrecision(3)));
}

// A figure: the text for readers, the exact value in an attribute.
export const data = (value, text, props) => h("data", { value: String(value), ...props }, text);

// A cell of a table. kind is a CSS class, as of its column.
export const cell = (content, kind = "number") => h("td", { class: kind }, content);

// columns: { title, kind }; kind is a CSS class.
export function table(caption, columns, rows) {
  return h("table", null,
    h("caption", { class: "hidden" }, caption),
    h("thead", null, h("tr", null, columns.map((column) => h("th", { scope: "col", class: column.kind }, column.title)))),
    h("tbody", null, rows));
}

const opened = new Set();

// A <details> element that stays open when its section is drawn again.
export function details(id, summary, ...content) {
  const toggle = (event) => opened[event.target.open ? "add" : "delete"](id);
  return h("details", { open: opened.has(id), on: { toggle } }, summary, ...content);
}
