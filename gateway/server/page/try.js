// A picture is chosen or dropped, the gateway is asked about it, and the answer is shown.

import { byId, element, facts, setText } from "./dom.js";
import { bytes, count, reasons, seconds, times } from "./format.js";

let chosen = null;
let asking = null;
let urls = [];

export function startTrying() {
  const file = byId("file");
  file.addEventListener("change", () => {
    if (file.files.length) take(file.files[0]);
    file.value = ""; // so that the same one can be chosen again
  });
  for (const id of ["model", "resize", "key"]) byId(id).addEventListener("change", () => chosen && take(chosen));
  const drop = byId("drop");
  for (const type of ["dragenter", "dragover"]) drop.addEventListener(type, (event) => mark(event, true));
  for (const type of ["dragleave", "drop"]) drop.addEventListener(type, (event) => mark(event, false));
  drop.addEventListener("drop", (event) => event.dataTransfer.files.length && take(event.dataTransfer.files[0]));
}

export function offerModels(models) {
  const names = [...new Set(models.map((model) => model.name))];
  const select = byId("model");
  const shown = [...select.options].map((option) => option.value);
  if (names.length === shown.length && names.every((name, index) => name === shown[index])) return;
  const kept = select.value;
  select.replaceChildren(...names.map((name) => element("option", { value: name }, name)));
  if (names.includes(kept)) select.value = kept;
}

function mark(event, isOver) {
  event.preventDefault();
  byId("drop").toggleAttribute("data-over", isOver);
}

async function take(file) {
  chosen = file;
  asking?.abort();
  const mine = (asking = new AbortController());
  clear();
  byId("try-result").setAttribute("aria-busy", "true");
  setText(byId("try-status"), `Looking at ${file.name}.`);
  try {
    const answer = await ask(file, mine.signal);
    if (asking === mine) showAnswer(file, answer);
  } catch (error) {
    if (asking === mine) showError(error);
  }
  if (asking === mine) byId("try-result").setAttribute("aria-busy", "false");
}

async function ask(file, signal) {
  const model = byId("model").value;
  const resize = byId("resize").value;
  const headers = { "content-type": "application/octet-stream" };
  if (resize) headers["x-gateway-resize"] = resize;
  if (key()) headers.authorization = `Bearer ${key()}`;
  const query = model ? `?model=${encodeURIComponent(model)}` : "";
  // A key goes nowhere but to this gateway.
  const answer = await fetch(`try${query}`, { method: "POST", body: file, headers, signal, redirect: "error" });
  const body = await answer.json();
  if (answer.status === 401) askForKey();
  if (!answer.ok) throw new Error(`${body.error.message} (${answer.status} ${body.error.code})`);
  return body;
}

// The field is its only place: neither stored nor shown, and only there where a key is asked for.
function key() {
  const typed = byId("key").value.trim();
  if (/[^\x21-\x7e]/.test(typed)) throw new Error("A key has letters, digits and signs of ASCII alone.");
  return typed;
}

function askForKey() {
  byId("key-field").hidden = false;
  if (!key()) byId("key").focus();
}

function clear() {
  for (const url of urls) URL.revokeObjectURL(url);
  urls = [];
  byId("try-error").replaceChildren();
  byId("try-result").replaceChildren();
}

function showError(error) {
  setText(byId("try-status"), "");
  const sentence = error.name === "TypeError" ? "The gateway did not answer." : error.message;
  byId("try-error").replaceChildren(element("p", {}, sentence));
}

function showAnswer(file, answer) {
  const [level, word, sentence] = verdictOf(answer.verdict);
  setText(byId("try-status"), `${word}. ${sentence}`);
  byId("try-result").replaceChildren(
    element(
      "div",
      { class: "verdict", "data-level": level },
      element("h3", {}, word),
      element("p", {}, sentence),
      ...remedies(answer.verdict),
    ),
    pictures(file, answer),
    ...numbers(answer.estimate),
    families(answer),
  );
}

function verdictOf(verdict) {
  if (verdict.verdict === "admitted") {
    return ["good", "Admitted", "A request with this picture would be let in at once."];
  }
  if (verdict.verdict === "waiting") return ["warn", "Waiting", waitSentence(verdict)];
  return ["bad", `Refused: ${verdict.error.reason}`, `${verdict.error.message} (${verdict.error.status})`];
}

function waitSentence(verdict) {
  const expected = verdict.expected_wait_seconds;
  const long = expected === null ? "for a time that is not known yet" : `for about ${seconds(expected)}`;
  const before = verdict.ahead ? `${count(verdict.ahead)} before it` : "nobody before it";
  return `It would wait ${long}, with ${before}, and be refused after ${seconds(verdict.longest_wait_seconds)}.`;
}

function remedies({ fits_with: fits }) {
  if (!fits) return [];
  const ways = fits.resize.map(({ size }) => `send it as ${times(size)}`);
  if (fits.max_tokens) ways.push(`ask for at most ${count(fits.max_tokens)} tokens of answer`);
  return ways.length ? [element("p", {}, `What would fit now: ${ways.join(", or ")}.`)] : [];
}

function pictures(file, { found, sent, trouble }) {
  const details = [found.format.toUpperCase(), times(found.size), bytes(found.file_bytes)];
  const all = element("div", { class: "pictures" }, picture("As it came", file, details));
  if (sent) all.append(sentPicture(file, found, sent));
  if (!sent) all.append(element("p", { class: "note" }, trouble ?? "Nothing of it would be sent."));
  return all;
}

function sentPicture(file, found, sent) {
  const format = sent.media_type.replace("image/", "").toUpperCase();
  const details = [format, times(sent.size), bytes(sent.file_bytes)];
  if (!sent.data) return picture("As it would be sent", file, details, "Byte for byte as it came.");
  const share = found.file_bytes / sent.file_bytes;
  const saved = share >= 2 ? `${Math.round(share)} times fewer bytes: ` : "";
  return picture("As it would be sent", decoded(sent), details, `${saved}${reasons(sent.why)}.`);
}

function decoded(sent) {
  const text = atob(sent.data);
  const file = new Uint8Array(text.length);
  for (let index = 0; index < text.length; index++) file[index] = text.charCodeAt(index);
  return new Blob([file], { type: sent.media_type });
}

function picture(title, blob, details, why = "") {
  const url = URL.createObjectURL(blob);
  urls.push(url);
  const image = element("img", { src: url, alt: `${title}: ${details.join(", ")}` });
  const frame = element("div", { class: "frame" }, image);
  const unshown = element("p", {}, "This browser cannot show the format.");
  image.addEventListener("error", () => frame.replaceChildren(unshown));
  const caption = element(
    "figcaption",
    {},
    element("strong", {}, title),
    element("span", {}, details.join(", ")),
    element("span", { class: "quiet" }, why),
  );
  return element("figure", {}, frame, caption);
}

function numbers(estimate) {
  if (!estimate) return [];
  const { tokens, amounts } = estimate;
  const list = element("dl", { class: "facts facts-row" });
  const ofPicture = `${count(tokens.visual)} of them for the picture`;
  const withAnswer = `with ${count(tokens.output_reserved)} tokens of answer`;
  facts(list, [
    { name: "Prompt tokens", value: count(tokens.prompt.expected), note: ofPicture },
    { name: "KV cache blocks", value: count(amounts.kv_blocks), note: withAnswer },
    { name: "Vision encoder tokens", value: count(amounts.encoder_tokens) },
    { name: "Priced for", value: estimate.model.family, note: estimate.model.name },
  ]);
  return [list];
}

function families({ families: rows, estimate }) {
  const head = ["Family", "As it came", "As sent"];
  return element(
    "table",
    { class: "families" },
    element("caption", {}, "Prompt tokens for each family, as its checkpoints are shipped"),
    element("thead", {}, element("tr", {}, ...head.map((name) => element("th", { scope: "col" }, name)))),
    element("tbody", {}, ...rows.map((row) => familyRow(row, row.family === estimate?.model.family))),
  );
}

function familyRow(row, isServed) {
  const name = element("th", { scope: "row" }, row.family);
  if (isServed) name.append(" ", element("span", { class: "chip", "data-level": "unknown" }, "this model"));
  const cells = row.trouble
    ? [element("td", { colspan: 2 }, row.trouble)]
    : [costCell(row.prompt_tokens, "seen as", row.model_size), costCell(row.sent_tokens, "sent as", row.sent_size)];
  return element("tr", isServed ? { "data-served": "" } : {}, name, ...cells);
}

function costCell(tokens, how, size) {
  const sized = element("span", { class: "quiet" }, `${how} ${times(size)}`);
  return element("td", {}, element("strong", {}, count(tokens)), " ", sized);
}
