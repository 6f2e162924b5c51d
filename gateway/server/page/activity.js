// What has happened: the figures at the top, refusals, images, and how good the estimates were.

import { byId, element, facts, keyed, part, setAttribute, setText } from "./dom.js";
import { clock, count, percent, ratio, seconds } from "./format.js";

const NEAR = [0.99, 1.01];

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
const total = (counts) => sum(Object.values(counts));

export function showActivity(state) {
  showFigures(state);
  showReasons(state);
  showRefusals(state);
  showImages(state);
  showDrift(state.drift);
}

function showFigures(state) {
  const refused = total(state.refused);
  const all = total(state.requests);
  const word = state.mode === "shadow" ? "Would be refused" : "Refused";
  facts(byId("figures"), [
    { name: "At the engine", value: count(sum(state.upstreams.map((upstream) => upstream.in_flight))) },
    { name: "Waiting", value: count(sum(state.upstreams.map((upstream) => upstream.queue.waiting))) },
    { name: "Finished", value: count(state.requests.finished ?? 0) },
    { name: word, value: count(refused), note: all ? `${percent(refused / all)} of ${count(all)}` : "" },
    { name: "Prompt tokens saved", value: count(total(state.tokens_saved)) },
  ]);
}

function showReasons(state) {
  const reasons = Object.entries(state.refused).sort(([, one], [, other]) => other - one);
  keyed(
    byId("reasons"),
    reasons,
    ([reason]) => reason,
    ([reason]) => element("li", {}, element("code", {}, reason), " ", element("strong", { "data-part": "count" })),
    (node, [, number]) => setText(part(node, "count"), count(number)),
  );
  byId("reasons").hidden = !reasons.length;
}

function showRefusals(state) {
  const groups = grouped(state.last_refusals);
  byId("refusals-none").hidden = groups.length > 0;
  byId("refusals").hidden = !groups.length;
  keyed(byId("refusals"), groups, (group) => group.oldest.request_id, makeRefusal, updateRefusal);
}

// Neighbours that differ in nothing but their time and their numbers are one entry: that of the newest.
function grouped(refusals) {
  const groups = [];
  for (const refusal of refusals) {
    const kind = [refusal.reason, refusal.status, refusal.endpoint, refusal.model, refusal.tenant].join(" ");
    const last = groups.at(-1);
    if (last?.kind === kind) Object.assign(last, { oldest: refusal, size: last.size + 1 });
    else groups.push({ kind, newest: refusal, oldest: refusal, size: 1 });
  }
  return groups;
}

function makeRefusal() {
  return element(
    "li",
    {},
    element(
      "div",
      { class: "refusal-head" },
      element("time", { "data-part": "time" }),
      element("code", { class: "reason", "data-part": "reason" }),
      element("span", { class: "quiet", "data-part": "details" }),
    ),
    element("p", { "data-part": "message" }),
    element("p", { class: "quiet", "data-part": "more" }),
  );
}

function updateRefusal(node, { newest, oldest, size }) {
  setAttribute(part(node, "time"), "datetime", newest.time);
  setText(part(node, "time"), clock(new Date(newest.time)));
  setText(part(node, "reason"), newest.reason);
  setText(part(node, "details"), detailsOf(newest));
  setText(part(node, "message"), newest.message ?? "In shadow mode: it was sent on.");
  setText(part(node, "more"), `and ${count(size - 1)} more like it since ${clock(new Date(oldest.time))}`);
  part(node, "more").hidden = size === 1;
}

function detailsOf(refusal) {
  const details = [
    refusal.is_told ? "would have been refused" : `${refusal.status}`,
    refusal.endpoint,
    refusal.model,
    refusal.upstream && `at ${refusal.upstream}`,
    refusal.tenant && refusal.tenant !== "default" && `tenant ${refusal.tenant}`,
    refusal.priority && refusal.priority !== "default" && refusal.priority,
    refusal.images && `${count(refusal.images)} ${refusal.images === 1 ? "image" : "images"}`,
    refusal.short && `short of ${refusal.short}`,
    refusal.queue_ms >= 1 && `waited ${seconds(refusal.queue_ms / 1000)}`,
  ];
  return details.filter(Boolean).join(" · ");
}

function showImages({ images, tokens_saved: saved, mode }) {
  const worth = (action) => (saved[action] ? `${count(saved[action])} prompt tokens saved` : "");
  const would = mode === "shadow" ? " (would be)" : "";
  facts(byId("images"), [
    { name: `Sent on untouched${would}`, value: count(images.kept ?? 0) },
    { name: `Encoded anew${would}`, value: count(images.normalised ?? 0) },
    { name: `Made smaller${would}`, value: count(images.resized ?? 0), note: worth("resized") },
    { name: `Left out of the history${would}`, value: count(images.trimmed ?? 0), note: worth("trimmed") },
  ]);
}

function showDrift(drift) {
  const text = driftSentence(drift);
  setText(byId("drift-text"), text);
  const bars = byId("drift-bars");
  setAttribute(bars, "aria-label", text);
  const most = Math.max(1, ...drift.counts);
  keyed(
    bars,
    drift.counts.map((number, index) => ({ index, height: number / most, near: isNear(drift.bounds, index) })),
    (column) => column.index,
    () => element("div", { class: "column" }),
    (node, column) => {
      setAttribute(node, "data-near", column.near);
      node.style.height = `${(column.height * 100).toFixed(1)}%`;
    },
  );
}

// The ratios of a count lie above the bound before it.
const isNear = (bounds, index) => bounds[index - 1] >= NEAR[0] && bounds[index] <= NEAR[1];

function driftSentence({ answers, mean_ratio: mean, bounds, counts }) {
  if (!answers) return "No answer has been compared yet.";
  const near = sum(counts.filter((_, index) => isNear(bounds, index)));
  const prompts = answers === 1 ? "prompt" : "prompts";
  const share = `${percent(near / answers)} of ${count(answers)} ${prompts} within 1 %.`;
  return `${share} Predicted ÷ reported is ${ratio(mean)} on average.`;
}
