// Asks the server for its state again and again, and shows it; says so when there is no answer.

import { at, show } from "./dom.js";
import * as sections from "./sections.js";

const LIVE_MS = 2000, FIGURES_MS = 5000, MOST_MS = 15000;
const KEY = "specclient-key";
const state = { live: null, figures: null, read: 0, failures: 0, timer: null, asked: 0 };

const span = () => document.querySelector("input[name=span]:checked").value;

class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function ask(path) {
  const key = sessionStorage.getItem(KEY);
  const headers = key ? { authorization: `Bearer ${key}` } : {};
  const answer = await fetch(path, { headers, cache: "no-store", signal: AbortSignal.timeout(20000) });
  if (!answer.ok) {
    const told = await answer.json().catch(() => null);
    throw new Refused(answer.status, told?.error?.message ?? `the server answered ${answer.status}`);
  }
  return answer.json();
}

function say(kind, text) {
  const node = at("status");
  if (node.dataset.state !== kind) node.dataset.state = kind;
  if (at("status-text").textContent !== text) at("status-text").textContent = text;
  document.body.classList.toggle("stale", kind === "away");
}

function draw(fresh) {
  const { live, figures } = state;
  if (!live || !figures) return;
  show(at("ask"), false);
  show(at("main"), true);
  show(at("spans"), true);
  show(at("forget"), sessionStorage.getItem(KEY) !== null);
  sections.tiles(live, figures);
  sections.running(live);
  sections.emptiness(live, figures);
  if (fresh) {
    sections.rate(figures);
    sections.latency(figures);
    sections.models(figures, sections.days(figures));
    sections.pairs(figures);
    sections.choices(figures);
    const from = live.ledger ? "Figures are the ledger's." : "The ledger is off: figures are of the calls since this server started.";
    at("about").textContent = `specclient ${live.version}. ${from}`;
  }
}

function wanted(kind, message) {
  sessionStorage.removeItem(KEY);
  show(at("main"), false);
  show(at("ask"), true);
  show(at("spans"), false);
  show(at("forget"), false);
  at("key-wrong").textContent = kind === "wrong" ? message : "";
  say("waiting", "A key is needed");
  at("key").focus();
}

async function poll() {
  clearTimeout(state.timer);
  const number = ++state.asked, chosen = span();
  try {
    const live = await ask("/dashboard/live");
    const due = !state.figures || state.figures.span !== chosen || Date.now() - state.read >= FIGURES_MS;
    const figures = due ? await ask(`/dashboard/figures?span=${chosen}`) : null;
    if (number !== state.asked) return;
    state.live = live;
    if (figures) {
      state.figures = figures;
      state.read = Date.now();
    }
    state.failures = 0;
    show(at("notice"), false);
    say("live", "Live");
    draw(due);
  } catch (error) {
    if (number !== state.asked) return;
    if (error instanceof Refused && error.status === 401) {
      wanted(sessionStorage.getItem(KEY) ? "wrong" : "none", "This is not a key of this server.");
      return;
    }
    failed(error);
  }
  if (!document.hidden) state.timer = setTimeout(poll, Math.min(LIVE_MS * 2 ** state.failures, MOST_MS));
}

function failed(error) {
  state.failures += 1;
  const when = state.figures ? ` Figures are of ${new Date(state.figures.at).toLocaleTimeString("en-GB")}.` : "";
  if (error instanceof Refused) {
    show(at("main"), true);
    at("notice").textContent = `No figures: ${error.message}`;
    show(at("notice"), true);
    say("away", "Trying again");
  } else {
    say("away", `The server does not answer; trying again.${when}`);
  }
}

at("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, at("key").value.trim());
  at("key").value = "";
  poll();
});
at("forget").addEventListener("click", () => {
  state.figures = state.live = null;
  wanted("none", "");
  poll();
});
at("spans").addEventListener("change", poll);
document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(state.timer) : poll()));

let drawn = window.innerWidth;
new ResizeObserver(() => {
  if (window.innerWidth === drawn) return;
  drawn = window.innerWidth;
  draw(true);
}).observe(document.documentElement);

poll();
