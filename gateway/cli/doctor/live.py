"""What a running vLLM tells of itself, asked once."""

import asyncio

import msgspec

from gateway.cli.options import fail, read_settings, upstream_flags
from gateway.domain.doctor.live import log_of_server
from gateway.domain.doctor.reader import Log
from gateway.models.known_specs import known_spec
from gateway.policies import upstreams_of
from gateway.upstream.pages import PageError, Pages
from gateway.wire.vllm_cache_config import read_cache_config

_TIMEOUT_SECONDS = 5.0


class _Card(msgspec.Struct):
    id: str
    root: str | None = None
    max_model_len: int | None = None


class _Models(msgspec.Struct):
    data: list[_Card]


class _Version(msgspec.Struct):
    version: str | None = None


def ask_server(url: str) -> Log:
    """A server that does not answer ends the command with exit code 2."""
    [upstream] = upstreams_of(read_settings(None, None, upstream_flags([url])).settings)
    try:
        return asyncio.run(look_at_server(upstream.url, upstream.key))
    except (PageError, ValueError) as error:
        fail(f"--upstream {url}: {error}. Is a vLLM there?")


async def look_at_server(url: str, key: str | None) -> Log:
    """Raises PageError where it does not answer, ValueError for answers that are not vLLM's."""
    pages = Pages(url, key, _TIMEOUT_SECONDS)
    try:
        labels = read_cache_config((await _body(pages, "/metrics")).decode(errors="replace"))
        models = msgspec.json.decode(await _body(pages, "/v1/models"), type=_Models).data
        version = msgspec.json.decode(await _body(pages, "/version"), type=_Version).version
    finally:
        await pages.close()
    card = models[0] if models else _Card("")
    # An alias is the name that clients write, the root what it was started with: a published name, or a folder.
    names = [name for name in (card.root, card.id) if name]
    model = next((name for name in names if known_spec(name) is not None), next(iter(names), None))
    return log_of_server(labels, version, model, card.max_model_len)


async def _body(pages: Pages, path: str) -> bytes:
    page = await pages.get(path)
    if not page.is_success:
        raise ValueError(f"{path} answered {page.status}")
    return page.body
