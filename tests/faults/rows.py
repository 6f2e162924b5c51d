"""The faults that are survived, one row each: what breaks, and what clients see of it. Data only.

Each row has one scripted test with its name (`@pytest.mark.fault(name)`); docs/faults.md shows the table.
`python -m tests.faults.rows` prints it.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """`sees` is for people; `seconds` bounds the time from the fault until everything came back (short forms)."""

    fault: str
    sees: str
    seconds: float = 60.0


_CUT = "a stream: an error event and its end; an answer in one piece: a connection that is cut"

ROWS = (
    Row("upstream killed mid-stream", "the tokens so far, an error event `upstream_error`, the stream's own end"),
    Row(
        "upstream killed before the first byte",
        "502 `upstream_error` or 503 `upstream_unavailable`; after that the latter",
    ),
    Row("upstream hangs", "504 `upstream_timeout`"),
    Row("upstream stalls between tokens", "the tokens so far, an error event `upstream_timeout`, the stream's own end"),
    Row("upstream half-open", "mid-stream: an error event `upstream_timeout`; before: 504; new connections: 503"),
    Row("upstream answers garbage", f"502 where it shows with the head; behind it, {_CUT}"),
    Row("upstream starts slowly", "503 `upstream_unavailable` with Retry-After until it listens, then 200"),
    Row(
        "upstream deadlocked, /health well",
        "504 `upstream_timeout`, or that event in a stream that stands; where there is another server: 200",
    ),
    Row("client sends headers slowly", "that client: 408; others: 200"),
    Row("client sends its body slowly", "that client: 408; others: 200"),
    Row("client reads slowly", "that client: cut off; others: 200"),
    Row("idle and active connections", "every request 200", 120.0),
    Row("no file descriptors left", "new connections wait or are closed; open ones: 503; then 200 again"),
    Row("event loop blocked for 2 s", "answers come 2 s later, none is lost"),
    Row("image worker killed", "200"),
    Row("image worker hangs", "400 `image_parse_error`; others: 200"),
    Row("poison image", "400 `image_parse_error`; others: 200"),
    Row("disk full for logs", "200; lines that were lost are counted"),
    Row("log pipe blocked", "200; lines that were lost are counted"),
    Row("clock jumps", "200, times and waits as before"),
    Row("name of the upstream cannot be resolved", "503 `upstream_unavailable`, then 200"),
    Row("upstream's certificate expires", "503 `upstream_unavailable` that says so; with the next certificate 200"),
    Row(
        "own certificate is replaced", "a damaged file changes nothing; new connections see the new one; streams go on"
    ),
    Row("SIGTERM under load", "200 for all that is inside; late ones 503 `draining`"),
    Row("SIGKILL and restart under load", "open answers are cut; with one retry, 200 of the next process"),
    Row("memory limit of 2 GiB at 3 times the load", "200, or 429 and 503 with a time to come back", 120.0),
    Row(
        "retry storm after an outage of 2 s",
        "by the rules of OpenAI's SDK 200 in the end; beyond the queue 429 for good",
        120.0,
    ),
    Row("clients leave in every phase", "those that stay: 200", 120.0),
    Row("keep-alive race with the upstream", "every request 200", 120.0),
    Row("packets are lost and late", "200, later", 120.0),
)
BY_NAME = {row.fault: row for row in ROWS}


def table() -> str:
    """As Markdown."""
    return "\n".join(["| fault | clients see |", "|---|---|", *(f"| {row.fault} | {row.sees} |" for row in ROWS)])


if __name__ == "__main__":
    print(table())
