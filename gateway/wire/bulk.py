"""Bodies that would become much larger once they are parsed, refused before anything is.

A list or an object of three bytes may become one of 170, a string or a number one of 30 to 60. What is counted here
bounds that: with all of these limits reached at once, parsing takes about 70 MB, and one body is parsed at a time.
Characters inside of strings count too. So the limits leave room for a conversation of a million tokens that is about
JSON: one bracket in ten tokens, a quote in two, a comma in one.
"""

from gateway.domain.errors import Code, GatewayError

MOST_CONTAINERS = 100_000
MOST_QUOTES = 500_000
MOST_COMMAS = 1_000_000

# Counting costs thirty times as much as looking for the next one, and in pictures there is none.
_FOUND_ONE_BY_ONE = 64
_WINDOW_BYTES = 64 * 1024


def count_pieces(body: bytes | bytearray) -> int:
    """Brackets that open, quotes and commas: what parsing the body costs grows with them.

    Raises GatewayError invalid_request where they are too many to parse it at all.
    """
    return (
        _count(body, b"{[", MOST_CONTAINERS, "opening brackets ({ and [)")
        + _count(body, b'"', MOST_QUOTES, "quotation marks")
        + _count(body, b",", MOST_COMMAS, "commas")
    )


def _count(body: bytes | bytearray, characters: bytes, most: int, name: str) -> int:
    found = sum(_count_one(body, character) for character in characters)
    if found > most:
        raise GatewayError(
            Code.INVALID_REQUEST,
            f"The body has {found} {name}, and at most {most} are read, those inside of texts included. "
            "Send less at once, for example fewer messages or prompts.",
        )
    return found


def _count_one(body: bytes | bytearray, character: int) -> int:
    at = -1
    for found in range(_FOUND_ONE_BY_ONE):
        at = body.find(character, at + 1)
        if at < 0:
            return found
    starts = range(at + 1, len(body), _WINDOW_BYTES)
    return _FOUND_ONE_BY_ONE + sum(
        body.count(character, start, start + _WINDOW_BYTES)
        for start in starts
        if body.find(character, start, start + _WINDOW_BYTES) >= 0
    )
