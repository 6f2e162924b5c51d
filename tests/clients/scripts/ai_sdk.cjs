// The Vercel AI SDK with its provider for servers that are like OpenAI's.
"use strict";

const { embedMany, generateText, streamText } = require("ai");
const { createOpenAICompatible } = require("@ai-sdk/openai-compatible");
const { MODEL, KEY, QUESTION, serve } = require("./lines.cjs");

const provider = (url) =>
  createOpenAICompatible({ name: "gateway", baseURL: `${url}/v1`, apiKey: KEY, includeUsage: true });

function asked(url, text, image) {
  const picture = image ? [{ type: "image", image }] : [];
  const messages = [{ role: "user", content: [{ type: "text", text }, ...picture] }];
  return { model: provider(url)(MODEL), messages, maxOutputTokens: 8 };
}

async function chat({ url, text = QUESTION, image }) {
  const answer = await generateText(asked(url, text, image));
  return { text: answer.text, prompt_tokens: answer.usage.inputTokens };
}

async function stream({ url, image }) {
  let met = null;
  const answer = streamText({ ...asked(url, QUESTION, image), onError: ({ error }) => (met = error) });
  const pieces = [];
  for await (const piece of answer.textStream) {
    pieces.push(piece);
  }
  if (met) {
    throw met;
  }
  return { text: pieces.join(""), pieces: pieces.length, prompt_tokens: (await answer.usage).inputTokens };
}

async function embeddings({ url }) {
  const answer = await embedMany({ model: provider(url).embeddingModel(MODEL), values: ["one", "two"] });
  return { vectors: answer.embeddings.length, length: answer.embeddings[0].length };
}

serve({ chat, stream, embeddings });
