// OpenAI's own SDK for JavaScript.
"use strict";

const OpenAI = require("openai").default;
const { MODEL, KEY, QUESTION, serve } = require("./lines.cjs");

const client = (url) => new OpenAI({ baseURL: `${url}/v1`, apiKey: KEY });

function messages(text, image) {
  const picture = image ? [{ type: "image_url", image_url: { url: image } }] : [];
  return [{ role: "user", content: [{ type: "text", text }, ...picture] }];
}

function input(image) {
  const picture = image ? [{ type: "input_image", image_url: image, detail: "auto" }] : [];
  return [{ role: "user", content: [{ type: "input_text", text: QUESTION }, ...picture] }];
}

async function chat({ url, text = QUESTION, image }) {
  const answer = await client(url).chat.completions.create({
    model: MODEL,
    messages: messages(text, image),
    max_tokens: 8,
  });
  return { text: answer.choices[0].message.content, prompt_tokens: answer.usage.prompt_tokens };
}

async function stream({ url, image }) {
  const events = await client(url).chat.completions.create({
    model: MODEL,
    messages: messages(QUESTION, image),
    max_tokens: 8,
    stream: true,
    stream_options: { include_usage: true },
  });
  const pieces = [];
  let usage = null;
  for await (const event of events) {
    pieces.push(...event.choices.map((choice) => choice.delta.content).filter(Boolean));
    usage = event.usage ?? usage;
  }
  return { text: pieces.join(""), pieces: pieces.length, prompt_tokens: usage.prompt_tokens };
}

async function responses({ url, image }) {
  const answer = await client(url).responses.create({ model: MODEL, input: input(image), max_output_tokens: 16 });
  return { text: answer.output_text, prompt_tokens: answer.usage.input_tokens };
}

async function responses_stream({ url, image }) {
  const events = client(url).responses.stream({ model: MODEL, input: input(image), max_output_tokens: 16 });
  const pieces = [];
  for await (const event of events) {
    if (event.type === "response.output_text.delta") {
      pieces.push(event.delta);
    }
  }
  const answer = await events.finalResponse();
  return { text: pieces.join(""), pieces: pieces.length, prompt_tokens: answer.usage.input_tokens };
}

async function embeddings({ url }) {
  const answer = await client(url).embeddings.create({ model: MODEL, input: ["one", "two"] });
  return { vectors: answer.data.length, length: answer.data[0].embedding.length };
}

serve({ chat, stream, responses, responses_stream, embeddings });
