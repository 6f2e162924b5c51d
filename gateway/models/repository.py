"""Names of repositories of the Hugging Face hub in what a server says it was given to load. Pure."""

import re
from pathlib import PurePosixPath
from typing import NamedTuple

_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_IN_CACHE = re.compile(r"(?:^|/)models--([A-Za-z0-9][\w.-]*?)--([A-Za-z0-9][\w.-]*)(?:/snapshots/(\w[\w.-]*))?(?:/|$)")


class Repository(NamedTuple):
    """`id` is `organisation/name`; `revision` None: that of its main branch."""

    id: str
    revision: str | None = None


def repository_of(text: str) -> Repository | None:
    """The repository that `text` names: as such, or as a folder of a Hugging Face cache, which has a revision too."""
    cached = _IN_CACHE.search(text)
    if cached is not None:
        return Repository(f"{cached[1]}/{cached[2]}", cached[3])
    return Repository(text) if _ID.fullmatch(text) and ".." not in text else None


def shown_name(root: str) -> str:
    """By which a model that was loaded from `root` is known: the repository's name, else the folder's own."""
    repository = repository_of(root)
    return PurePosixPath(root).name if repository is None else repository.id
