"""A stand-in for vLLM 0.32 that keeps its HTTP contract. Imports nothing from the rest of gateway.

Layers, pure first: kv, encoder_cache, engine (a clock is handed in) and statistics simulate; tokens, content, vision,
pictures and prompt turn a request into token ids; driver and preprocessing add time; answers, errors, schema and
metrics write what goes over the wire; anthropic, responses and response_* are those routes; generation, tokenization,
application and exchange are a bare ASGI shell; serve starts it.

It checks the gateway, so it counts tokens and reads pictures by its own means. A captured vLLM 0.32.0 is the truth.
Where the emulator differs on purpose:

- Routes: chat (batches too) and text completions, responses, Anthropic's messages and their count, tokenize,
  detokenize, models, health, ping, version, load, kv_event_sources and metrics. Every other route answers 404,
  `/invocations` included.
- Responses: neither tools nor thoughts are made, and what tools, calls and thoughts cost is not counted. Of the over
  two hundred mistakes that vLLM lists of an item that fits no type, one is named.
- It never opens an outgoing connection: http(s) images get the 500 that vLLM gives for a refused connection, at once
  instead of after three tries.
- A schema error inside `messages` names the same first field as vLLM but counts one error, not one for each member of
  vLLM's union type.
- One SSE event carries exactly one token; vLLM merges tokens when its API process lags behind its engine.
- Ignored: `seed`, `stop`, `logprobs` (checked, never answered), `tools`, `response_format`, `truncate_prompt_tokens`,
  `priority`, `use_beam_search`, `echo`, `chat_template`.
- Text is one token a byte with the chat template of a minimal Qwen model; every family shares it.
- Answers are syllables that follow from the body; without `max_tokens` their length is drawn from a seeded lognormal.
- The prefix cache keeps full blocks of prompts only, not of answers. `/tokenize` fills the processor cache like chat.
- Metrics: all `vllm:*` series and `http_requests_total`; not the other `http_*`, `python_*` and `process_*` series.
- The deviations a test switches on: `x-emulator-output-tokens` and `/emulator/faults` (see faults.py).
"""
