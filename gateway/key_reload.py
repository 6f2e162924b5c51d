"""The keys file in use: read at the start, and anew when it changes or when told so. A bad one changes nothing.

Each change is a line in the log with the names of the keys, for who looks back; the keys themselves are known nowhere.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from math import inf

from gateway.access import setting_keys
from gateway.domain.keys import Key, KeyTable
from gateway.domain.tenancy import Tenancy
from gateway.keys_file import KeysFileError, read_keys
from gateway.pipeline.gauges import Reading, quota_shares
from gateway.settings import Settings
from gateway.settings.keys import KeyEntry

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0

_Signature = tuple[int, int, int, int] | None
_UNREAD: _Signature = (-1, -1, -1, -1)


def keys_of_file(settings: Settings) -> Sequence[KeyEntry]:
    """Those of the keys file, if one is named, which must not be in the settings too. Raises KeysFileError."""
    path = settings.keys.file
    if path is None:
        return ()
    entries = read_keys(path)
    own = {digest for tenant in settings.tenants for digest in tenant.key_sha256}
    twice = [entry.name for entry in entries if entry.sha256 in own]
    if twice:
        raise KeysFileError(f"{path}: also in the settings (tenants[].key_sha256): {', '.join(twice)}; keep one")
    return entries


class KeysInUse:
    """Gives `tenancy` the keys of the file beside those of the settings. `clock` is that which it is asked with."""

    def __init__(
        self,
        settings: Settings,
        tenancy: Tenancy,
        clock: Callable[[], float],
        wall_clock: Callable[[], float] = time.time,
        look_seconds: float = _LOOK_SECONDS,
    ) -> None:
        self._settings = settings
        self._path = settings.keys.file
        self.tenancy = tenancy
        self._of_settings = setting_keys(settings, tenancy.named) if settings.has_keys else []
        self._clock = clock
        self._wall_clock = wall_clock
        self._look_seconds = look_seconds
        self._entries: dict[str, KeyEntry] = {}
        self._signature: _Signature = _UNREAD
        self._is_asked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.reloads = {"done": 0, "failed": 0}
        self.is_stale = False

    def gauge_readers(self) -> dict[str, Callable[[], Reading]]:
        """By the declared name of the metric."""
        return {
            "tenant_quota_used_ratio": lambda: quota_shares(self.tenancy.with_quota(), self._clock()),
            "keys": lambda: self.tenancy.known_keys,
            "keys_stale": lambda: float(self.is_stale),
            "key_reloads_total": lambda: self.reloads,
        }

    async def load(self) -> None:
        """At the start. Raises KeysFileError."""
        if self._path is not None:
            self._signature = _signature_of(self._path)
            self._use(await asyncio.to_thread(keys_of_file, self._settings))
            logger.info("keys: %d of %s are in use", len(self._entries), self._path)

    async def start(self) -> None:
        """Look after it from now on."""
        if self._path is not None:
            self._task = asyncio.create_task(self._watch(self._path))

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    def ask(self) -> None:
        """Read it anew now, be it changed or not."""
        self._signature = _UNREAD
        self._is_asked.set()

    async def look(self, path: str) -> None:
        """Read it anew if it is another file than it was."""
        signature = _signature_of(path)
        if signature == self._signature:
            return
        self._signature = signature
        try:
            entries = await asyncio.to_thread(keys_of_file, self._settings)
            if self._entries and not entries and signature is not None:
                _refuse_nothing(path, signature)
        except KeysFileError as error:
            self.reloads["failed"] += 1
            self.is_stale = True
            logger.error("keys: the file is not used, and those that there were stay: %s", error)  # noqa: TRY400
            return
        self.reloads["done"] += 1
        self.is_stale = False
        before = self._entries
        self._use(entries)
        _tell(path, before, self._entries)

    async def _watch(self, path: str) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._look_seconds):
                    await self._is_asked.wait()
            self._is_asked.clear()
            try:
                await self.look(path)
            except Exception:
                logger.exception("keys: %s could not be read anew", path)

    def _use(self, entries: Sequence[KeyEntry]) -> None:
        # Times of day are told on another clock than that which keys are asked for with.
        ahead = self._clock() - self._wall_clock()
        tenants = self.tenancy.tenants_named(entry.tenant for entry in entries)
        of_file = [
            Key(
                bytes.fromhex(entry.sha256),
                tenants[entry.tenant],
                inf if entry.expires is None else entry.expires.timestamp() + ahead,
            )
            for entry in entries
        ]
        self.tenancy.use(KeyTable([*self._of_settings, *of_file]))
        self._entries = {entry.name: entry for entry in entries}


def _tell(path: str, before: Mapping[str, KeyEntry], after: Mapping[str, KeyEntry]) -> None:
    changes = {
        "created": sorted(after.keys() - before.keys()),
        "revoked": sorted(before.keys() - after.keys()),
        "changed": sorted(name for name in after.keys() & before.keys() if after[name] != before[name]),
    }
    told = "; ".join(f"{what} {', '.join(names)}" for what, names in changes.items() if names) or "nothing changed"
    fields = {f"keys_{what}": names for what, names in changes.items()}
    logger.info("keys: reloaded from %s: %s", path, told, extra={"event": "keys_reloaded", "keys": len(after)} | fields)


def _refuse_nothing(path: str, signature: tuple[int, ...]) -> None:
    """Of a file without keys. One without a byte is more likely about to be written than a word of its owner.

    Raises KeysFileError.
    """
    if not signature[-1]:
        raise KeysFileError(f"{path}: is empty; `keys: []` would say that there are no keys any more")


def _signature_of(path: str) -> _Signature:
    """What another file there would not have, nor this one once its owner or mode is another; None: there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116 - as quick as it can be, for it is asked every second
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size
