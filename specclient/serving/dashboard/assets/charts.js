// Turns numbers into drawings: an area over time, stacked columns, bars and ranges.

import { digits, dollars, h, s } from "./dom.js";

// Left of a chart, as wide as its numbers: at least, and for each letter.
const LEFT = 46, LETTER = 7.4, GAP = 8;
const RIGHT = 2, TOP = 10, BOTTOM = 22;

// Round numbers from 0 up to the first that is not below the top.
export function ticks(top, most = 4) {
  if (top <= 0) return [0, 1];
  const rough = top / most, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((size) => size >= rough * (1 - 1e-9));
  return Array.from({ length: Math.ceil(top / step - 1e-9) + 1 }, (_, k) => k * step);
}

function frame(width, height, marks, form, says) {
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": says });
  const bottom = height - BOTTOM, scale = (bottom - TOP) / marks.at(-1);
  const left = Math.max(LEFT, GAP + LETTER * Math.max(...marks.map((mark) => form(mark).length)));
  for (const mark of marks) {
    const y = Math.round(bottom - mark * scale) + 0.5;
    svg.append(
      s("line", { class: mark ? "rule" : "base", x1: left, x2: width, y1: y, y2: y }),
      s("text", { x: left - GAP, y: y + 4, "text-anchor": "end" }, form(mark)));
  }
  return { svg, bottom, scale, left, inner: width - left - RIGHT };
}

function labels(svg, height, all, left, inner) {
  const places = all.filter(({ label }) => label);
  const every = Math.max(Math.ceil(places.length / Math.max(Math.floor(inner / 64), 1)), 1);
  places.forEach(({ x, label }, i) => {
    if (i % every || x > left + inner - 16) return;
    svg.append(s("text", { x, y: height - 5, "text-anchor": x > left + 20 ? "middle" : "start" }, label));
  });
}

// steps: { value, label, says }; the line ends where the last step does.
export function area(steps, { width, height, says }) {
  const marks = ticks(Math.max(...steps.map((step) => step.value)));
  const { svg, bottom, scale, left, inner } = frame(width, height, marks, digits, says);
  const slot = inner / steps.length;
  const xy = steps.map((step, i) => [left + slot * (i + 0.5), bottom - step.value * scale]);
  const line = xy.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
  svg.append(
    s("path", { class: "area", d: `${line}L${xy.at(-1)[0].toFixed(1)} ${bottom}L${xy[0][0].toFixed(1)} ${bottom}Z` }),
    s("path", { class: "line", d: line }));
  labels(svg, height, steps.map((step, i) => ({ x: xy[i][0], label: step.label })), left, inner);
  steps.forEach((step, i) => svg.append(
    s("g", { class: "spot" },
      s("rect", { x: left + slot * i, y: TOP, width: slot, height: bottom - TOP }),
      s("circle", { cx: xy[i][0], cy: xy[i][1], r: 3.5 }),
      s("title", null, step.says))));
  return svg;
}

// steps: { label, says, parts: [{ value, look }] }
export function columns(steps, { width, height, says }) {
  const top = Math.max(...steps.map((step) => step.parts.reduce((sum, part) => sum + part.value, 0)));
  const { svg, bottom, scale, left, inner } = frame(width, height, ticks(top), dollars, says);
  const slot = inner / steps.length, thick = Math.max(Math.min(slot * 0.72, 34), 2);
  const places = steps.map((step, i) => {
    const middle = left + slot * (i + 0.5);
    const group = s("g", { class: "spot" }, s("rect", { x: left + slot * i, y: TOP, width: slot, height: bottom - TOP }));
    let y = bottom;
    for (const part of step.parts) {
      const tall = part.value * scale;
      if (tall <= 0) continue;
      y -= tall;
      const gap = tall > 3 ? 1 : 0;
      group.append(s("rect", { class: part.look, x: (middle - thick / 2).toFixed(1), y: (y + gap).toFixed(2),
        width: thick.toFixed(1), height: Math.max(tall - gap, 0.6).toFixed(2), rx: Math.min(2, thick / 4) }));
    }
    group.append(s("title", null, step.says));
    svg.append(group);
    return { x: middle, label: step.label };
  });
  labels(svg, height, places, left, inner);
  return svg;
}

// One bar under its own name and value.
export function bar(name, value, beside, part, look) {
  return h("li", null,
    h("div", { class: "says" }, h("span", { class: "name" }, name), h("span", { class: "value" }, value)),
    h("div", { class: "track", "aria-hidden": "true" },
      h("span", { class: look, style: { width: `${100 * Math.min(Math.max(part, 0), 1)}%` } })),
    beside ? h("p", { class: "soft" }, beside) : null);
}

// Where durations lie, on one logarithmic scale: a mark at the median, a bar to p95, a thin one to p99.
export function range([middle, high, top], low, decades) {
  const place = (value) => 100 * Math.min(Math.max(Math.log10(value / low) / decades, 0), 1);
  const span = (from, to, look) => h("span", { class: look,
    style: { left: `${place(from)}%`, width: `${Math.max(place(to) - place(from), 0.5)}%` } });
  return h("div", { class: "track range", "aria-hidden": "true" },
    span(middle, top, "thin"), span(middle, high, "thick"),
    h("span", { class: "mark", style: { left: `${place(middle)}%` } }));
}
