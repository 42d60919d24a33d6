// Polls the server for its state and figures, and draws them; shows a notice while the server does not answer.

import { at, build, fill, show } from "./dom.js";

const LIVE_MS = 2000, FIGURES_MS = 5000, MAX_DELAY_MS = 15000;
const KEY = "specclient-key";
const state = { live: null, figures: null, drawn: null, readAt: 0, failures: 0, timer: null, polls: 0 };

const span = () => document.querySelector("input[name=span]:checked").value;

class ServerError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function get(path) {
  const key = sessionStorage.getItem(KEY);
  const headers = key ? { authorization: `Bearer ${key}` } : {};
  const response = await fetch(path, { headers, cache: "no-store", signal: AbortSignal.timeout(20000) });
  if (!response.ok) {
    const body = await response.json().catch(() => null);
    throw new ServerError(response.status, body?.error?.message ?? `the server answered ${response.status}`);
  }
  return response.json();
}

function status(kind, text) {
  const node = at("status");
  if (node.dataset.state !== kind) node.dataset.state = kind;
  if (at("status-text").textContent !== text) at("status-text").textContent = text;
  document.body.classList.toggle("stale", kind === "away");
}

function draw() {
  const { live, figures } = state;
  show(at("ask"), false);
  show(at("main"), true);
  show(at("spans"), true);
  show(at("forget"), sessionStorage.getItem(KEY) !== null);
  fill(at("tiles"), live.tiles.flatMap(build), figures.tiles.flatMap(build));
  drawSections(live.sections);
  drawEmpty(live, figures);
  // Figures that have not changed are not drawn again, so that focus and selection stay.
  const content = JSON.stringify({ ...figures, at: null, since: null });
  if (content === state.drawn) return;
  state.drawn = content;
  drawSections(figures.sections);
  const source = live.ledger ? "Figures come from the ledger." : "The ledger is off: figures cover the calls since this server started.";
  at("about").textContent = `specclient ${live.version}. ${source}`;
}

// Fills sections, and keeps the scroll position of a table in them.
function drawSections(views) {
  for (const [id, [subtitle, content]] of Object.entries(views)) {
    const node = at(id), scrolled = node.querySelector(".scroll")?.scrollTop ?? 0;
    fill(at(`${id}-sub`), subtitle.flatMap(build));
    fill(node, content.flatMap(build));
    if (scrolled) node.querySelector(".scroll")?.scrollTo(0, scrolled);
  }
}

// Shows how to make the first call if there has been none.
function drawEmpty(live, figures) {
  show(at("empty"), figures.empty);
  document.body.classList.toggle("none", figures.empty);
  if (!figures.empty) return;
  const url = `${location.origin}/v1`, model = live.model ?? "auto";
  const body = JSON.stringify({ model, messages: [{ role: "user", content: "def fibonacci(n):" }], max_tokens: 32 });
  const key = sessionStorage.getItem(KEY) ? '-H "Authorization: Bearer $SPECCLIENT_SERVER_KEY" ' : "";
  at("base-url").textContent = url;
  at("curl").textContent = `curl ${url}/chat/completions ${key}-H 'Content-Type: application/json' \\\n  -d '${body}'`;
}

function askForKey(message) {
  sessionStorage.removeItem(KEY);
  show(at("main"), false);
  show(at("ask"), true);
  show(at("spans"), false);
  show(at("forget"), false);
  at("key-wrong").textContent = message;
  status("waiting", "A key is needed");
  at("key").focus();
}

async function poll() {
  clearTimeout(state.timer);
  const number = ++state.polls, chosen = span();
  try {
    const live = await get("/dashboard/live");
    const due = !state.figures || state.figures.span !== chosen || Date.now() - state.readAt >= FIGURES_MS;
    const figures = due ? await get(`/dashboard/figures?span=${chosen}`) : null;
    if (number !== state.polls) return;
    state.live = live;
    if (figures) {
      state.figures = figures;
      state.readAt = Date.now();
    }
    state.failures = 0;
    show(at("notice"), false);
    status("live", "Live");
    draw();
  } catch (error) {
    if (number !== state.polls) return;
    if (error instanceof ServerError && error.status === 401) {
      askForKey(sessionStorage.getItem(KEY) ? "This is not a key of this server." : "");
      return;
    }
    showFailure(error);
  }
  if (!document.hidden) state.timer = setTimeout(poll, Math.min(LIVE_MS * 2 ** state.failures, MAX_DELAY_MS));
}

function showFailure(error) {
  state.failures += 1;
  if (error instanceof ServerError) {
    show(at("main"), true);
    at("notice").textContent = `No figures: ${error.message}`;
    show(at("notice"), true);
    status("away", "Trying again");
    return;
  }
  const age = state.figures ? ` Figures are from ${new Date(state.figures.at).toLocaleTimeString("en-GB")}.` : "";
  status("away", `The server does not answer; trying again.${age}`);
}

at("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, at("key").value.trim());
  at("key").value = "";
  poll();
});
at("forget").addEventListener("click", () => {
  state.figures = state.live = state.drawn = null;
  askForKey("");
  poll();
});
at("spans").addEventListener("change", poll);
document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(state.timer) : poll()));

poll();
