"""How long a model's tokens are is asked of its server before its first request, by two questions to `/tokenize` that
its engine does not notice. Whatever goes wrong is left at what is learned from usage.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.models.served import ModelTable
from gateway.pipeline.calibration import asked_models, parents
from gateway.upstream.pages import PageError, Pages, one_line
from gateway.upstream.state import UpstreamState
from gateway.wire.calibration import TOKENIZE_PATH, tokenize_count
from gateway.wire.text_sample import MORE_BYTES, SAMPLE, SHORT, question

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class TextSampler:
    """An observer of the poller of one upstream: each model is asked about once, and once more when the server was
    started anew, whatever it answers. Adapters are not: they have their parents' tokenizer.
    """

    models: ModelTable
    open_pages: Callable[[], Pages]
    is_on: bool = True
    log_prefix: str = ""
    _asked: set[str] = field(default_factory=set)
    _told: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    _parents: dict[str, str] = field(default_factory=dict)
    _starts: int = 0
    _task: asyncio.Task[None] | None = None

    def __call__(self, state: UpstreamState) -> None:
        if not self.is_on or not state.is_up or (self._task is not None and not self._task.done()):
            return
        names, self._parents = asked_models(state), parents(state)
        if state.starts != self._starts:
            self._starts = state.starts
            self._asked.clear()
            self._told.clear()
        self._asked.intersection_update((*names, *self._parents))
        self._hand_on()
        new = [name for name in names if name not in self._asked]
        if new:
            self._asked.update(new)
            self._task = asyncio.create_task(self._sample(new), name="text sample")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _sample(self, names: list[str]) -> None:
        pages = self.open_pages()
        troubles: set[str] = set()
        try:
            for name in names:
                try:
                    await self._sample_one(pages, name)
                except Exception as error:  # noqa: BLE001  nothing that a server says may end more than this
                    troubles.add(one_line(error))
        finally:
            await pages.close()
        if troubles:
            _log.info("%show long tokens are was not told: %s", self.log_prefix, "; ".join(sorted(troubles)))

    async def _sample_one(self, pages: Pages, name: str) -> None:
        short, long = [await _count(pages, name, text) for text in (SHORT, SAMPLE)]
        if long > short:
            self._told[name] = told = MORE_BYTES, long - short, short - 1
            self.models.served(name).ratio.sampled(*told)
            self._hand_on()

    def _hand_on(self) -> None:
        for name, parent in self._parents.items():
            if parent in self._told and name not in self._asked:
                self._asked.add(name)
                self.models.served(name).ratio.sampled(*self._told[parent])


async def _count(pages: Pages, model: str, text: str) -> int:
    """Raises PageError."""
    page = await pages.post(TOKENIZE_PATH, question(model, text))
    count = tokenize_count(page.body) if page.is_success else None
    if count is None:
        raise PageError(f"{TOKENIZE_PATH} answered {page.status} without a count")
    return count
