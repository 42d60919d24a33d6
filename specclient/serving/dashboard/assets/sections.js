// Turns what the server tells into the sections of the page.

import { area, bar, columns, range } from "./charts.js";
import { at, count, data, digits, fill, h, plural, show, table } from "./dom.js";

const COLOURS = 6;
const SPANS = { "1h": "last hour", "24h": "last 24 hours", "7d": "last 7 days", "30d": "last 30 days" };
const UNKNOWN = "–";
const open = new Set();

const utc = (date, parts) => new Intl.DateTimeFormat("en-GB", { timeZone: "UTC", ...parts }).format(date);
const clock = (date) => utc(date, { hour: "2-digit", minute: "2-digit" });
const day = (date) => utc(date, { day: "numeric", month: "short" });
const nothing = (text) => h("p", { class: "nothing" }, text);
const width = (node) => Math.max(Math.floor(node.clientWidth), 200);

function tile(title, figure, beside, props) {
  return h("div", { class: "tile", ...props }, h("dt", null, title), h("dd", null, figure, h("span", { class: "soft" }, beside)));
}

export function tiles(live, figures) {
  const total = figures.total, span = SPANS[figures.span];
  const [first] = figures.latency;
  const failed = total.errors ? `${count(total.errors)} failed` : "none failed";
  fill(at("tiles"),
    tile("Running", data(live.running, count(live.running), { id: "running-count" }),
      live.waiting ? `${count(live.waiting)} waiting` : "none waiting", { "data-busy": live.running > 0 }),
    tile("Tokens per second", data(figures.now_tokens_per_s, digits(figures.now_tokens_per_s), { id: "per-s" }), "over the last minute"),
    tile("Cost", data(total.cost, total.calls ? total.cost_text : "$0", { id: "cost" }), span),
    tile("Calls", data(total.calls, count(total.calls), { id: "calls" }), failed, { "data-failed": total.errors > 0 }),
    tile("Acceptance", data(total.acceptance ?? "", total.acceptance_text, { id: "acceptance" }),
      total.drafted ? `of ${count(total.drafted)} drafted tokens` : "nothing was drafted"),
    tile("First token", data(first.values[0] ?? "", first.texts[0], { id: "ttft" }), `median; p95 ${first.texts[1]}`));
}

export function rate(figures) {
  const { step_s: step, last_s: last, begins, tokens } = figures.rate, from = new Date(begins).getTime();
  const long = step >= 86400, days = figures.span === "7d";
  const steps = tokens.map((sum, i) => {
    const date = new Date(from + i * step * 1000), value = sum / (i === tokens.length - 1 ? last : step);
    const label = long ? day(date) : !days ? clock(date) : date.getUTCHours() ? "" : day(date);
    const when = long ? day(date) : `${day(date)}, ${clock(date)}`;
    return { value, label, says: `${when} UTC\n${digits(value)} tokens per second\n${plural(sum, "token", "tokens")}` };
  });
  const sum = tokens.reduce((one, other) => one + other, 0), node = at("rate");
  at("rate-sub").textContent = `${plural(sum, "token", "tokens")} generated, ${SPANS[figures.span]}; times are UTC`;
  fill(node, sum
    ? area(steps, { width: width(node), height: 250, says: `Generated tokens per second, ${SPANS[figures.span]}: at most ${digits(Math.max(...steps.map((each) => each.value)))}` })
    : nothing(`No tokens were generated in the ${SPANS[figures.span]}.`));
}

export function latency(figures) {
  const known = figures.latency.filter((each) => each.values[0] !== null);
  at("latency-sub").textContent = known.length ? "Mark: median. Bar: to p95; thin: to p99. Logarithmic." : "";
  if (!known.length) return fill(at("latency"), nothing("No call succeeded."));
  const low = 10 ** Math.floor(Math.log10(Math.max(Math.min(...known.map((each) => each.values[0])), 1e-6)));
  const high = 10 ** Math.ceil(Math.log10(Math.max(...known.map((each) => each.values[2]), low * 1.01)));
  const decades = Math.max(Math.round(Math.log10(high / low)), 1);
  fill(at("latency"), h("ul", { class: "latencies" }, known.map((each) => h("li", { "data-name": each.name },
    h("div", { class: "says" }, h("span", { class: "name" }, each.title), h("span", { class: "soft" }, each.what)),
    range(each.values.map((value) => Math.max(value, low)), low, decades),
    h("dl", { class: "percentiles" }, ["p50", "p95", "p99"].map((name, i) =>
      h("div", null, h("dt", null, name), h("dd", null, data(each.values[i], each.texts[i])))))))));
}

export function running(live) {
  const hidden = live.running + live.waiting - live.requests.length;
  at("running-sub").textContent = hidden > 0 ? `${count(hidden)} more are not listed here` : "";
  if (!live.requests.length) return fill(at("running"), nothing("No request is running."));
  fill(at("running"), h("ul", { class: "running" }, live.requests.map((each) => h("li", null,
    h("span", { class: "name" }, each.model),
    h("span", { class: "soft" }, [each.route, each.streamed ? "stream" : null, each.key].filter(Boolean).join(" · ")),
    h("span", { class: each.waiting ? "badge waits" : "badge" }, each.waiting ? "waiting" : "running"),
    h("span", { class: "value" }, `${each.seconds.toFixed(1)} s`)))));
}

export function days(figures) {
  const { days: names, lines, total_text: total } = figures.days, node = at("days");
  const spent = new Map();
  for (const line of lines) spent.set(line.model, (spent.get(line.model) ?? 0) + Number(line.cost));
  const dear = [...spent].filter(([, sum]) => sum > 0).sort((one, other) => other[1] - one[1]).map(([name]) => name);
  const looks = new Map(dear.map((name, i) => [name, i < COLOURS ? `k${i}` : "rest"]));
  const steps = names.map((name) => {
    const own = lines.filter((line) => line.day === name);
    const parts = dear.map((model) => ({ value: Number(own.find((line) => line.model === model)?.cost ?? 0), look: looks.get(model) }));
    const says = own.filter((line) => Number(line.cost) > 0).map((line) => `${line.model}: ${line.text}`);
    return { label: day(new Date(`${name}T00:00:00Z`)), says: [day(new Date(`${name}T00:00:00Z`)), ...says].join("\n"), parts };
  });
  at("days-sub").replaceChildren(data(figures.days.total, total, { id: "days-total" }), " in the last 30 days; days are UTC's");
  fill(node, dear.length
    ? columns(steps, { width: width(node), height: 220, says: `Cost by day, last 30 days: ${total}` })
    : nothing("No call of the last 30 days has a known cost above zero."));
  const shown = dear.slice(0, COLOURS), rest = dear.length - shown.length;
  fill(at("days-legend"),
    shown.map((name) => h("li", null, h("span", { class: `key ${looks.get(name)}` }), name)),
    rest ? h("li", null, h("span", { class: "key rest" }), plural(rest, "other", "others")) : []);
  fill(at("days-table"), table("Cost by day and model", [{ title: "Day" }, { title: "Model" }, { title: "Calls", kind: "number" }, { title: "Cost", kind: "number" }],
    [...lines].reverse().map((line) => h("tr", null, h("td", null, line.day), h("td", { class: "name" }, line.model),
      h("td", { class: "number" }, count(line.calls)), h("td", { class: "number" }, data(line.cost, line.text))))));
  return looks;
}

export function pairs(figures) {
  fill(at("pairs"), figures.pairs.length
    ? h("ul", { class: "bars" }, figures.pairs.map((each) => {
      const kept = `${count(each.accepted)} of ${count(each.drafted)} ${each.kind === "draft" ? "drafted" : "predicted"} tokens`;
      return bar(each.name, data(each.rate, each.rate_text), each.length_text ? `${kept}; ${each.length_text} tokens a pass` : kept, each.rate, "k2");
    }))
    : nothing("Nothing was drafted. Local models, and providers that verify predictions, show their acceptance here."));
}

export function models(figures, looks) {
  at("models-sub").textContent = SPANS[figures.span];
  const most = Math.max(...figures.models.map((each) => Number(each.cost)), 0) || 1;
  const heads = [{ title: "Model" }, { title: "Cost", kind: "number" }, { title: "", kind: "spread" }, { title: "Calls", kind: "number" },
    { title: "Failed", kind: "number extra" }, { title: "In", kind: "number extra" }, { title: "Out", kind: "number extra" },
    { title: "Accepted", kind: "number extra" }, { title: "p50", kind: "number extra" }, { title: "p95", kind: "number extra" }];
  const cells = (each) => [
    h("td", { class: "number strong" }, data(each.cost, each.cost_text)),
    h("td", { class: "spread", "aria-hidden": "true" }, each.name === "total" ? "" : h("span", { class: looks.get(each.name) ?? "rest", style: { width: `${100 * Number(each.cost) / most}%` } })),
    h("td", { class: "number" }, data(each.calls, count(each.calls))),
    h("td", { class: each.errors ? "number extra bad" : "number extra" }, count(each.errors)),
    h("td", { class: "number extra" }, data(each.tokens_in, count(each.tokens_in))),
    h("td", { class: "number extra" }, data(each.tokens_out, count(each.tokens_out))),
    h("td", { class: "number extra" }, each.acceptance_text),
    h("td", { class: "number extra" }, each.p50_text),
    h("td", { class: "number extra" }, each.p95_text)];
  const rows = figures.models.map((each) => h("tr", { "data-model": each.name }, h("th", { scope: "row", class: "name" }, each.name), cells(each)));
  if (rows.length) rows.push(h("tr", { class: "sum", id: "models-total" }, h("th", { scope: "row" }, "Total"), cells(figures.total)));
  fill(at("models"), rows.length ? table(`Cost by model, ${SPANS[figures.span]}`, heads, rows) : nothing(`No calls in the ${SPANS[figures.span]}.`));
  fill(at("notes"), figures.total.notes.map((note) => h("li", null, note)));
}

function chosen(each) {
  const why = each.candidates.filter((candidate) => candidate.route !== each.chosen || candidate.reason);
  const head = [
    h("span", { class: "when" }, h("time", { datetime: each.at }, new Date(each.at).toLocaleTimeString("en-GB"))),
    h("span", { class: "route" }, each.asked === each.chosen ? h("b", null, each.chosen) : [`${each.asked} → `, h("b", null, each.chosen)]),
    h("span", { class: "value" }, [each.cost_text, each.latency_text].filter((text) => text !== UNKNOWN).join(" · ")),
    h("span", { class: each.status === "ok" ? "soft why" : "bad why" }, each.status === "ok" ? each.reason : `${each.status}: ${each.error ?? "left by the caller"}`)];
  if (why.length < 2) return h("li", { "data-call": each.id }, h("div", { class: "choice" }, head));
  const toggle = (event) => open[event.target.open ? "add" : "delete"](each.id);
  return h("li", { "data-call": each.id }, h("details", { open: open.has(each.id), on: { toggle } },
    h("summary", { class: "choice" }, head),
    h("ul", { class: "candidates" }, why.map((candidate) => h("li", null,
      h("span", { class: candidate.verdict === "chosen" ? "badge" : "badge waits" }, candidate.verdict),
      h("span", { class: "name" }, candidate.route), h("span", { class: "soft" }, candidate.reason))))));
}

export function choices(figures) {
  at("choices-sub").textContent = figures.choices.length ? "The latest calls, the newest first." : "";
  const routed = figures.routes.filter((each) => each.asked !== each.chosen);
  fill(at("routes"), routed.length ? h("ul", { class: "bars columns" }, routed.slice(0, 6).map((each) =>
    bar(`${each.asked} → ${each.chosen}`, plural(each.calls, "call", "calls"), null, each.calls / Math.max(...routed.map((one) => one.calls)), "k0"))) : []);
  fill(at("choices"), figures.choices.length ? figures.choices.map(chosen) : h("li", null, nothing(`No calls in the ${SPANS[figures.span]}.`)));
}

export function emptiness(live, figures) {
  const none = figures.total.calls === 0 && figures.days.lines.length === 0;
  show(at("empty"), none);
  document.body.classList.toggle("none", none);
  if (!none) return;
  const url = `${location.origin}/v1`, model = live.model ?? "auto";
  const body = JSON.stringify({ model, messages: [{ role: "user", content: "def fibonacci(n):" }], max_tokens: 32 });
  const key = sessionStorage.getItem("specclient-key") ? '-H "Authorization: Bearer $SPECCLIENT_SERVER_KEY" ' : "";
  at("base-url").textContent = url;
  at("curl").textContent = `curl ${url}/chat/completions ${key}-H 'Content-Type: application/json' \\\n  -d '${body}'`;
}
