// Turns tag names, properties and children into elements; every text stays text.

const SVG = "http://www.w3.org/2000/svg";

function apply(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, listen] of Object.entries(value)) node.addEventListener(event, listen);
    else if (name === "style") for (const [property, to] of Object.entries(value)) node.style.setProperty(property, to);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

export const h = (tag, props, ...children) => apply(document.createElement(tag), props, children);
export const s = (tag, props, ...children) => apply(document.createElementNS(SVG, tag), props, children);
export const at = (id) => document.getElementById(id);
export const fill = (node, ...children) => node.replaceChildren(...children.flat());
export const show = (node, on) => { node.hidden = !on; };

const whole = new Intl.NumberFormat("en");
export const count = (value) => whole.format(value);

// To three digits, as the command line writes figures.
export function digits(value) {
  if (!value) return "0";
  return value >= 100 ? whole.format(Math.round(value)) : String(Number(value.toPrecision(3)));
}

export const dollars = (value) => "$" + (value >= 1 ? digits(value) : String(Number(value.toPrecision(3))));
export const plural = (number, one, many) => `${count(number)} ${number === 1 ? one : many}`;

// A figure with its exact value beside the text that is read.
export const data = (value, text, props) => h("data", { value: String(value), ...props }, text);

export function table(caption, heads, rows) {
  return h("table", null,
    h("caption", { class: "hidden" }, caption),
    h("thead", null, h("tr", null, heads.map((head) => h("th", { scope: "col", class: head.kind }, head.title)))),
    h("tbody", null, rows));
}
