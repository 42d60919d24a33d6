// Creates elements. Text is always set as text, never parsed; only charts arrive as markup.

function h(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value === true ? "" : value);
  node.append(...children.flat());
  return node;
}

// The elements of a chart. The server renders charts (specclient/reports/page/charts.py) and escapes their texts.
const chart = (markup) => [...new DOMParser().parseFromString(markup, "text/html").body.childNodes];

export const at = (id) => document.getElementById(id);
export const fill = (node, ...children) => node.replaceChildren(...children.flat());
export const show = (node, on) => { node.hidden = !on; };

const opened = new Set();

// Makes what the server describes (specclient/serving/dashboard/elements.py): a text, or [tag, attributes, children].
// Returns the list of its nodes.
export function build(described) {
  if (typeof described === "string") return [described];
  const [tag, attributes, children] = described;
  if (tag === "chart") return chart(children[0]);
  if (tag === "time") return [h(tag, attributes, new Date(attributes.datetime).toLocaleTimeString("en-GB"))];
  const made = h(tag, attributes, children.flatMap(build));
  if (tag === "details") { // stays open when its section is drawn again
    const key = attributes["data-key"];
    made.open = opened.has(key);
    made.addEventListener("toggle", () => opened[made.open ? "add" : "delete"](key));
  }
  return [made];
}
