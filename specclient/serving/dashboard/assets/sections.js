// The sections of the page. Each turns the server's figures into elements; charts arrive rendered.

import { at, cell, chart, count, data, details, digits, fill, h, show, table } from "./dom.js";

const UNKNOWN = "–";
const nothing = (text) => h("p", { class: "nothing" }, text);
const number = (title, kind = "number") => ({ title, kind });

// A new section is one entry here; figures it needs are added to specclient/serving/dashboard/figures.py.
//   id      of the element that holds the content; `${id}-title` and `${id}-sub` are its heading and subtitle
//   width   CSS class: "" one column of the grid, "wide" two, "full" three
//   live    whether it shows the state of the server instead of figures
//   draw    takes the figures (or the state) and returns { subtitle, content }
export const SECTIONS = [
  { id: "rate", title: "Tokens per second", width: "wide", draw: rate },
  { id: "latency", title: "Latency", width: "", draw: latency },
  { id: "running", title: "Running now", width: "full", live: true, draw: running },
  { id: "days", title: "Cost by day", width: "wide", draw: days },
  { id: "pairs", title: "Acceptance by pair", width: "", draw: pairs },
  { id: "models", title: "Cost by model", width: "full", draw: models },
  { id: "choices", title: "Routing decisions", width: "full", draw: choices },
];

// Creates the empty sections.
export function build(grid) {
  fill(grid, SECTIONS.map(({ id, title, width }) =>
    h("section", { class: `card ${width}`, "aria-labelledby": `${id}-title` },
      h("div", { class: "head" }, h("h2", { id: `${id}-title` }, title), h("p", { class: "soft", id: `${id}-sub` })),
      h("div", { id }))));
}

// Draws the sections of one kind, and keeps the scroll position of a table in them.
export function drawSections(source, live) {
  for (const section of SECTIONS.filter((each) => Boolean(each.live) === live)) {
    const node = at(section.id), scrolled = node.querySelector(".scroll")?.scrollTop ?? 0;
    const { subtitle, content } = section.draw(source);
    fill(at(`${section.id}-sub`), subtitle);
    fill(node, content);
    if (scrolled) node.querySelector(".scroll")?.scrollTo(0, scrolled);
  }
}

function tile(title, figure, detail, props) {
  return h("div", { class: "tile", ...props }, h("dt", null, title), h("dd", null, figure, h("span", { class: "soft" }, detail)));
}

export function tiles(live, figures) {
  const { total } = figures, [first] = figures.latency;
  const failed = total.errors ? `${count(total.errors)} failed` : "none failed";
  fill(at("tiles"),
    tile("Running", data(live.running, count(live.running), { id: "running-count" }),
      live.waiting ? `${count(live.waiting)} waiting` : "none waiting", { "data-busy": live.running > 0 }),
    tile("Tokens per second", data(figures.now_tokens_per_s, digits(figures.now_tokens_per_s), { id: "per-s" }), "over the last minute"),
    tile("Cost", data(total.cost, total.calls ? total.cost_text : "$0", { id: "cost" }), figures.span_title),
    tile("Calls", data(total.calls, count(total.calls), { id: "calls" }), failed, { "data-failed": total.errors > 0 }),
    tile("Acceptance", data(total.acceptance ?? "", total.acceptance_text, { id: "acceptance" }),
      total.drafted ? `of ${count(total.drafted)} drafted tokens` : "no drafted tokens"),
    tile("First token", data(first.values[0] ?? "", first.texts[0], { id: "ttft" }), `median; p95 ${first.texts[1]}`));
}

function rate({ rate: { tokens, chart: drawn }, span_title: span }) {
  const sum = tokens.reduce((one, other) => one + other, 0);
  return {
    subtitle: `${count(sum)} ${sum === 1 ? "token" : "tokens"} generated, ${span}; times are UTC`,
    content: drawn ? chart(drawn) : nothing(`No tokens were generated in the ${span}.`),
  };
}

function latency({ latency: lines, latency_chart: drawn }) {
  if (!drawn) return { subtitle: "", content: nothing("No call succeeded.") };
  const known = lines.filter((line) => line.values[0] !== null);
  return {
    subtitle: "Mark: median. Bar: to p95; thin: to p99. Logarithmic scale.",
    content: [...chart(drawn), table("Latency percentiles", [{ title: "" }, number("p50"), number("p95"), number("p99")],
      known.map((line) => h("tr", { "data-name": line.name }, h("th", { scope: "row", title: line.description }, line.title),
        line.values.map((value, i) => cell(data(value, line.texts[i]))))))],
  };
}

function running(live) {
  const hidden = live.running + live.waiting - live.requests.length;
  const row = (each) => h("li", null,
    h("span", { class: "name" }, each.model),
    h("span", { class: "soft" }, [each.route, each.streamed ? "stream" : null, each.key].filter(Boolean).join(" · ")),
    h("span", { class: each.waiting ? "badge waits" : "badge" }, each.waiting ? "waiting" : "running"),
    h("span", { class: "value" }, `${each.seconds.toFixed(1)} s`));
  return {
    subtitle: hidden > 0 ? `${count(hidden)} more are not listed here` : "",
    content: live.requests.length ? h("ul", { class: "running" }, live.requests.map(row)) : nothing("No request is running."),
  };
}

function days({ days: { lines, total, total_text: text, chart: drawn } }) {
  const heads = [{ title: "Day" }, { title: "Model" }, number("Calls"), number("Cost")];
  const rows = [...lines].reverse().map((line) => h("tr", null, cell(line.day, null), cell(line.model, "name"),
    cell(count(line.calls)), cell(data(line.cost, line.text))));
  return {
    subtitle: [data(total, text, { id: "days-total" }), " in the last 30 days; days are in UTC"],
    content: [
      ...(drawn ? chart(drawn) : [nothing("No call of the last 30 days has a known cost above zero.")]),
      details("days-table", h("summary", null, "The same as a table"),
        h("div", { class: "scroll", id: "days-table" }, table("Cost by day and model", heads, rows)))],
  };
}

function pairs({ pairs_chart: drawn }) {
  return {
    subtitle: "Share of drafted tokens that the target model accepted.",
    content: drawn ? chart(drawn)
      : nothing("No tokens were drafted. Local models, and providers that verify predictions, show their acceptance rate here."),
  };
}

function models({ models: lines, total, span_title: span }) {
  const heads = [{ title: "Model" }, number("Cost"), number("", "spread"), number("Calls"), number("Failed", "number extra"),
    number("In", "number extra"), number("Out", "number extra"), number("Accepted", "number extra"),
    number("p50", "number extra"), number("p95", "number extra")];
  const cells = (line) => [
    cell(data(line.cost, line.cost_text), "number strong"),
    h("td", { class: "spread", "aria-hidden": "true" }, chart(line.bar ?? "")),
    cell(data(line.calls, count(line.calls))),
    cell(count(line.errors), line.errors ? "number extra bad" : "number extra"),
    cell(data(line.tokens_in, count(line.tokens_in)), "number extra"),
    cell(data(line.tokens_out, count(line.tokens_out)), "number extra"),
    ...[line.acceptance_text, line.p50_text, line.p95_text].map((text) => cell(text, "number extra"))];
  const rows = lines.map((line) => h("tr", { "data-model": line.name }, h("th", { scope: "row", class: "name" }, line.name), cells(line)));
  const sum = h("tr", { class: "sum", id: "models-total" }, h("th", { scope: "row" }, "Total"), cells(total));
  return {
    subtitle: span,
    content: [
      rows.length ? table(`Cost by model, ${span}`, heads, [...rows, sum]) : nothing(`No calls in the ${span}.`),
      h("ul", { class: "notes soft" }, total.notes.map((note) => h("li", null, note)))],
  };
}

function choice(call) {
  const candidates = call.candidates.filter((candidate) => candidate.route !== call.chosen || candidate.reason);
  const ok = call.status === "ok";
  const head = [
    h("span", { class: "when" }, h("time", { datetime: call.at }, new Date(call.at).toLocaleTimeString("en-GB"))),
    h("span", { class: "route" }, call.requested === call.chosen ? null : `${call.requested} → `, h("b", null, call.chosen)),
    h("span", { class: "value" }, [call.cost_text, call.latency_text].filter((text) => text !== UNKNOWN).join(" · ")),
    h("span", { class: ok ? "soft why" : "bad why" }, ok ? call.reason : `${call.status}: ${call.error ?? "cancelled by the caller"}`)];
  if (candidates.length < 2) return h("li", { "data-call": call.id }, h("div", { class: "choice" }, head));
  return h("li", { "data-call": call.id }, details(call.id,
    h("summary", { class: "choice" }, head),
    h("ul", { class: "candidates" }, candidates.map((candidate) => h("li", null,
      h("span", { class: candidate.verdict === "chosen" ? "badge" : "badge waits" }, candidate.verdict),
      h("span", { class: "name" }, candidate.route), h("span", { class: "soft" }, candidate.reason))))));
}

function choices({ choices: calls, routes_chart: drawn, span_title: span }) {
  return {
    subtitle: calls.length ? "Latest calls, newest first." : "",
    content: [
      h("div", { class: "routes" }, chart(drawn)),
      calls.length ? h("ol", { class: "choices" }, calls.map(choice)) : nothing(`No calls in the ${span}.`)],
  };
}

// Shows how to make the first call if there has been none.
export function emptiness(live, figures) {
  const empty = figures.total.calls === 0 && figures.days.lines.length === 0;
  show(at("empty"), empty);
  document.body.classList.toggle("none", empty);
  if (!empty) return;
  const url = `${location.origin}/v1`, model = live.model ?? "auto";
  const body = JSON.stringify({ model, messages: [{ role: "user", content: "def fibonacci(n):" }], max_tokens: 32 });
  const key = sessionStorage.getItem("specclient-key") ? '-H "Authorization: Bearer $SPECCLIENT_SERVER_KEY" ' : "";
  at("base-url").textContent = url;
  at("curl").textContent = `curl ${url}/chat/completions ${key}-H 'Content-Type: application/json' \\\n  -d '${body}'`;
}
