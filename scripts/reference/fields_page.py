"""docs/reference/fields.md, from gateway/domain/fields.py."""

from gateway.domain.fields import FIELDS, Field, Measure, Treatment
from scripts.reference.markdown import code, page, table

_INTRO = """\
A request has fields by which it could cost more than what is counted, or harm whoever shares the server. Each has a
rule here: what it may ask for, and what becomes of more. What is *refused* gets 400 `invalid_request` with the field as
`param`; what is *brought down* is written anew in its place in the body, and nothing else is. A field that is not in
this table goes on as it came. The rules are the same on every route that has the field, and a request that has none of
these fields takes half a microsecond longer for them.

Each rule is a section of the [settings](settings.md), named after the field (`b` within `a` is `a_b`). Its `policy`
says what becomes of more (`allow`: there is no bound), its `most` what is still allowed:

```sh
vlm-gateway check --set fields.n.most=16 --set fields.prompt_logprobs.policy=allow
```

What vLLM makes of a field was read in the code of vLLM 0.32 and in its issues; the numbers were chosen to let usual
requests pass. They are bounds of one request each. How many requests are served at once is
[admission's](../architecture.md) affair, which counts each of the `n` answers, and of a prompt that vLLM is to cut
(`truncate_prompt_tokens`) what is left.
"""
_FIXED = """\
## What has no setting

- **Embeddings in place of media or text** (`image_embeds`, `audio_embeds`, `video_embeds` and `prompt_embeds`, as parts
  or as a field) are refused. They are tensors that vLLM loads into the engine; ones of a wrong shape may end it, as its
  own documentation says of `--enable-mm-embeds`.
- **`kv_transfer_params.prompt_token_ids`** is refused also where `kv_transfer_params` is allowed: it would replace the
  prompt that was counted.
- **`x-data-parallel-rank`** and **`x-vllm-priority`** never reach vLLM from a client. The first picks an engine past
  vLLM's own balancing; the second stands above `priority` in the body. `hand_on` writes the second where it is told to.
- **`request_id`** has no effect: vLLM goes by `x-request-id`, and gets one of the gateway's own, for two alike upset
  it.
- **`session_id`** and `x-session-id` go on: vLLM 0.32 only repeats them in its events about the KV cache.
- **`cache_salt`** and the **`uuid`** of an image are kept within their tenant: see [isolation](../isolation.md).
- **A grammar that is small and slow to compile** cannot be told from others by its size, nor is a `pattern` within a
  JSON schema, or a schema of a tool, looked at by itself. What a compiler may take is for vLLM to bound.
"""
_TREATED = {Treatment.ALLOW: "allowed", Treatment.CLAMP: "brought down", Treatment.REFUSE: "refused"}


def fields_page() -> str:
    rows = [(code(each.setting), _default(each), f"It {each.why}.", each.vllm) for each in FIELDS]
    rules = table(("setting", "without a setting", "because", "vLLM itself"), rows)
    return page("Fields", "gateway/domain/fields.py", _INTRO.rstrip(), rules, _FIXED.rstrip())


def _default(field: Field) -> str:
    treatment, most = field.rule
    if most is None:
        return _TREATED[treatment]
    if field.measure is Measure.URGENCY:
        return f"below -{most} {_TREATED[treatment]}" if most else f"below 0 {_TREATED[treatment]}"
    unit = " bytes" if field.measure is Measure.BYTES else ""
    return f"above {most:,}{unit} {_TREATED[treatment]}"
