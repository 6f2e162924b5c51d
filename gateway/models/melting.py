"""Line ends that melt into the blank lines around a picture, as in Gemma 3 and Gemma 3n.

Their vocabularies have tokens for one to four line ends. vLLM puts a picture with a blank line before and after it into
the prompt once that is tokens already, and then joins what stands beside each other.
Source: vLLM 0.32 `gemma3_mm.py`, `gemma3n_mm.py` (`_apply_token_matches`).
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_OPENING = ("boi_token_index", "boi_token_id")
"""Keys of config.json: the token that the template writes for a picture."""


class Melting(NamedTuple):
    """Ids of that token, and of those for one to four line ends."""

    picture: int
    line_ends: tuple[int, int, int, int]

    @classmethod
    def of(cls, tokenizer: "Tokenizer", config: Mapping[str, Any]) -> "Melting | None":
        """None for a model that has no such tokens."""
        picture = next((config[key] for key in _OPENING if isinstance(config.get(key), int)), None)
        one, two, three, four = (tokenizer.token_to_id("\n" * count) for count in range(1, 5))
        if picture is None or one is None or two is None or three is None or four is None:
            return None
        return cls(picture, (one, two, three, four))

    def lost(self, ids: Sequence[int]) -> int:
        """By how many tokens the prompt is shorter than its text and its pictures are together."""
        if self.picture not in ids:
            return 0
        one, two, three, four = self.line_ends
        whole = [each for token in ids for each in ((two, token, two) if token == self.picture else (token,))]
        joined = whole
        for pair, together in (((one, two), three), ((two, one), three), ((two, two), four)):
            joined = _joined(joined, pair, together)
        return len(whole) - len(joined)


def _joined(ids: Sequence[int], pair: tuple[int, int], together: int) -> list[int]:
    joined: list[int] = []
    is_open = False
    for token in ids:
        if is_open and (joined[-1], token) == pair:
            joined[-1] = together
            is_open = False
        else:
            joined.append(token)
            is_open = True
    return joined
