// Asks the gateway how it is while somebody looks, and hands the answer to those who show it.

import { showActivity } from "./activity.js";
import { showBudget } from "./budget.js";
import { byId, setAttribute, setText } from "./dom.js";
import { clock } from "./format.js";
import { offerModels, startTrying } from "./try.js";

const EVERY_MS = 1000;
const AFTER_FAILURE_MS = 3000;
const PATIENCE_MS = 5000;

let timer = null;
let round = 0;
let isPaused = false;
let lastSeen = null;

async function look() {
  const mine = ++round;
  let wait = EVERY_MS;
  try {
    const answer = await fetch("state", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
    const body = await answer.json();
    if (!answer.ok) throw new Error(body.error.message);
    show(body);
  } catch (error) {
    wait = AFTER_FAILURE_MS;
    showLoss(error);
  }
  // Of two that are under way, as after a pause, only the later one goes on.
  if (mine === round && !isPaused && !document.hidden) timer = setTimeout(look, wait);
}

function lookAgain() {
  clearTimeout(timer);
  if (!isPaused && !document.hidden) look();
}

function show(state) {
  lastSeen = new Date(state.time);
  setText(byId("version"), state.version);
  setText(byId("updated"), `Updated ${clock(lastSeen)}`);
  tell(...overall(state));
  showBudget(state);
  showActivity(state);
  offerModels(state.upstreams.flatMap((upstream) => upstream.models));
}

function showLoss(error) {
  const since = lastSeen ? ` since ${clock(lastSeen)}` : "";
  const why = error.name === "TypeError" || error.name === "TimeoutError" ? "" : ` (${error.message})`;
  tell("bad", `No answer from the gateway${since}${why}. What you see is old.`);
}

function overall(state) {
  const serving = state.upstreams.filter((upstream) => upstream.state === "up").length;
  const all = state.upstreams.length;
  if (state.is_draining) return ["warn", "Draining: nothing new is taken."];
  if (!serving) return ["bad", all === 1 ? "The model server cannot serve now." : "No model server can serve now."];
  if (serving < all) return ["warn", `${serving} of ${all} model servers serve.`];
  if (state.mode === "shadow") return ["good", "Serving in shadow mode: decisions are only told."];
  return ["good", "Serving."];
}

// Screen readers say it when it changes: with the state of things, not with every number.
function tell(level, sentence) {
  setAttribute(byId("overall-mark"), "data-level", level);
  setText(byId("overall-text"), sentence);
}

byId("pause").addEventListener("click", () => {
  isPaused = !isPaused;
  setAttribute(byId("pause"), "aria-pressed", isPaused);
  lookAgain();
});
document.addEventListener("visibilitychange", lookAgain);
startTrying();
lookAgain();
