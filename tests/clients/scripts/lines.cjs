// As lines.py, for clients in JavaScript. CommonJS, because NODE_PATH, which says where the packages are, is for it.
"use strict";

const readline = require("node:readline");

const MODEL = "tiny";
const KEY = "sk-clients";
const QUESTION = "What is in it?";

function tell(what) {
  process.stdout.write(JSON.stringify(what) + "\n");
}

async function seen(action, asked) {
  try {
    return await action(asked);
  } catch (error) {
    const met = error.lastError ?? error; // the AI SDK wraps what its last attempt met
    return {
      error: met.constructor.name === "_APICallError" ? "APICallError" : met.constructor.name,
      status: met.status ?? met.statusCode ?? null,
      message: String(met.message),
    };
  }
}

async function serve(actions) {
  tell({ ready: true });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { do: name, ...asked } = JSON.parse(line);
    tell(await seen(actions[name], asked));
  }
}

module.exports = { MODEL, KEY, QUESTION, serve };
