// What is held of each resource: a card for each model server, and one for the gateway itself.

import { byId, element, facts, keyed, part, setAttribute, setText } from "./dom.js";
import { amount, count, familySource, percent, resourceName, seconds } from "./format.js";

const STATES = {
  up: ["good", "Up"],
  passed_over: ["warn", "Passed over"],
  loading: ["warn", "Loading"],
  down: ["bad", "Down"],
};
const HIGH = 0.9;
const MOST_MODELS = 5;
let bars = 0;

export function showBudget(state) {
  keyed(byId("upstreams"), state.upstreams, (upstream) => upstream.name, makeUpstream, (node, upstream) =>
    updateUpstream(node, upstream, state.upstreams.length === 1),
  );
  showBars(byId("shared"), state.shared);
}

function makeUpstream() {
  return element(
    "article",
    { class: "card" },
    element(
      "div",
      { class: "card-head" },
      element("h3", { "data-part": "name" }),
      element("span", { class: "chip", "data-part": "state" }),
    ),
    element("p", { class: "note", "data-part": "trouble" }),
    element("p", { class: "quiet models", "data-part": "models" }),
    element(
      "div",
      { class: "split" },
      element("ul", { class: "bars", "data-part": "bars" }),
      element("dl", { class: "facts", "data-part": "facts" }),
    ),
  );
}

function updateUpstream(node, upstream, isOnly) {
  const [level, word] = STATES[upstream.state] ?? ["unknown", upstream.state];
  setText(part(node, "name"), isOnly && upstream.name === "default" ? "Model server" : upstream.name);
  setText(part(node, "state"), word);
  setAttribute(part(node, "state"), "data-level", level);
  const trouble = troubleOf(upstream);
  setText(part(node, "trouble"), trouble);
  part(node, "trouble").hidden = !trouble;
  setText(part(node, "models"), modelSentences(upstream.models));
  showBars(part(node, "bars"), upstream.resources.filter(isWorthABar));
  facts(part(node, "facts"), factsOf(upstream));
}

function troubleOf(upstream) {
  if (upstream.state === "passed_over") {
    return "It answers, but fails or does no work: requests go elsewhere where they can.";
  }
  if (upstream.state === "up") return upstream.trouble ? `Not all that it tells can be read: ${upstream.trouble}` : "";
  return upstream.trouble ?? "It does not answer.";
}

function modelSentences(models) {
  const sentences = models.slice(0, MOST_MODELS).map(modelSentence);
  if (models.length > MOST_MODELS) sentences.push(`And ${count(models.length - MOST_MODELS)} more.`);
  return sentences.join(" ");
}

function modelSentence(model) {
  const context = model.max_model_len === null ? "" : `, ${count(model.max_model_len)} tokens of context`;
  return `${model.name}: ${model.family}, ${familySource(model.family_source)}${context}.`;
}

// Without levels of service nothing bounds what is on its way to a first token, and there is nothing to see.
function isWorthABar(resource) {
  return resource.capacity !== null || resource.held > 0 || !resource.resource.includes("prefill");
}

function factsOf(upstream) {
  const { queue, engine } = upstream;
  const pressure = `text ${upstream.pressure.text.toFixed(2)}, images ${upstream.pressure.image.toFixed(2)}`;
  const entries = [
    { name: "Sent, not yet answered", value: count(upstream.in_flight) },
    { name: "Waiting", value: `${count(queue.waiting)} of ${count(queue.places)}`, note: waitNote(queue) },
    { name: "Share of the budget let in", value: percent(upstream.ceiling_ratio), note: pauseNote(upstream) },
    { name: "Pressure", value: pressure, note: upstream.rungs.join(", ") },
  ];
  const beyond = upstream.overcommit_blocks;
  if (beyond) entries.push({ name: "KV blocks beyond the budget", value: count(beyond) });
  if (engine) entries.push(...engineFacts(engine));
  return entries;
}

function waitNote(queue) {
  const tokens = queue.waiting ? `${count(queue.cost_tokens)} tokens` : "";
  const drain = queue.waiting && queue.drain_per_second ? `, ${queue.drain_per_second.toFixed(1)} leave a second` : "";
  return tokens + drain;
}

const pauseNote = ({ pause_seconds: pause }) => (pause ? `nothing is sent for ${seconds(pause)}` : "");

function engineFacts(engine) {
  const age = engine.age_seconds === null ? "" : `${seconds(engine.age_seconds)} ago`;
  const shown = (number) => (number === null ? "not told" : count(number));
  return [
    { name: "Engine: running, waiting", value: `${shown(engine.running)}, ${shown(engine.waiting)}`, note: age },
    { name: "Engine: KV cache in use", value: engine.kv_usage === null ? "not told" : percent(engine.kv_usage) },
    { name: "Engine: preemptions", value: shown(engine.preemptions) },
  ];
}

function showBars(list, resources) {
  keyed(list, resources, (resource) => resource.resource, makeBar, updateBar);
}

function makeBar(resource) {
  const id = `bar-${++bars}`;
  return element(
    "li",
    { class: "bar", "data-resource": resource.resource },
    element("span", { id }, resourceName(resource.resource)),
    element("span", { class: "bar-value", "data-part": "value" }),
    element(
      "div",
      { class: "track", role: "meter", "aria-labelledby": id, "aria-valuemin": 0, "data-part": "track" },
      element("div", { class: "fill", "data-part": "fill" }),
    ),
  );
}

function updateBar(node, { resource, held, capacity }) {
  const track = part(node, "track");
  track.hidden = capacity === null;
  if (capacity === null) {
    setText(part(node, "value"), `${amount(resource, held)}, no limit known`);
    return;
  }
  const share = held / Math.max(1, capacity);
  const full = share >= 1 ? ", full" : "";
  const text = `${amount(resource, held)} of ${amount(resource, capacity)} (${percent(share)}${full})`;
  setText(part(node, "value"), text);
  setAttribute(track, "aria-valuemax", capacity);
  setAttribute(track, "aria-valuenow", Math.min(held, capacity));
  setAttribute(track, "aria-valuetext", text);
  setAttribute(track, "data-level", share > 1 ? "bad" : share >= HIGH ? "warn" : "good");
  part(node, "fill").style.width = `${Math.min(100, share * 100).toFixed(1)}%`;
}
