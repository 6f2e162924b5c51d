"""Whatever is fed in, nothing raises and nothing takes long."""

import time

from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.doctor.diagnosis import diagnose
from gateway.domain.doctor.live import log_of_server
from gateway.domain.doctor.planned import flags_of
from tests.support.vllm_logs import FOLDER, NAMES, diagnosed, read

LOGS = [(FOLDER / name).read_bytes() for name in NAMES]
LINES = [line for log in LOGS for line in log.splitlines(keepends=True)]
SECONDS = 5.0
LABELS = (
    "num_gpu_blocks", "block_size", "kv_cache_size_tokens", "kv_cache_max_concurrency", "gpu_memory_utilization",
    "cache_dtype", "kv_cache_memory_bytes",
)  # fmt: skip


def cut(data, start, length, put):
    return data[:start] + put + data[start + length :]


@st.composite
def mutated(draw):
    """A log with bytes cut out, put in or doubled in several places."""
    data = draw(st.sampled_from(LOGS))
    for _ in range(draw(st.integers(0, 6))):
        start = draw(st.integers(0, len(data)))
        put = draw(
            st.one_of(st.binary(max_size=40), st.sampled_from([b"9" * 400, b"-", b"nan", b"{" * 300, b"\x1b[", b"'"]))
        )
        data = cut(data, start, draw(st.integers(0, 80)), put)
    return data


@given(mutated(), st.integers(1, 5000))
def test_mutated_logs(data, piece_bytes):
    log = read(data, piece_bytes=piece_bytes)
    found = diagnose(log)
    flags_of(log.start)
    assert all(each.advice.title for each in found.findings)


@given(st.lists(st.sampled_from(LINES), max_size=60))
def test_lines_of_different_logs_in_any_order(lines):
    diagnosed(b"".join(lines))


@given(st.binary(max_size=2000))
def test_bytes_of_any_kind(data):
    diagnosed(data)


@given(
    st.dictionaries(st.sampled_from(LABELS), st.text(max_size=12)),
    st.one_of(st.none(), st.integers(-1, 2**62)),
)
def test_labels_of_any_kind(labels, context):
    diagnose(log_of_server(labels, "x", "m", context))


def seconds_of(data):
    start = time.perf_counter()
    diagnosed(data)
    return time.perf_counter() - start


def test_what_is_long_is_read_in_time():
    """Each is what makes one of the patterns look longest."""
    hard = [
        b"x" * 4_000_000, b"\x1b]" * 200_000, b"(a pid=1) " * 100_000, b"vllm-1 | " * 100_000, b'{"msg":"' * 100_000,
        b"out of memory. Tried to allocate 1.00 GiB. has a total capacity of " * 20_000, b"a" * 60_000 + b" pid=1)",
        b"non-default args: {" + b"'a': [{" * 9000 + b"\n", b"vllm serve " + b"--a " * 15_000 + b"\n",
        b"INFO 11-30 10:00:00 [" + b"a/" * 30_000 + b"\n", b"\n" * 500_000,
        b"max seq len (1), (" + b"1" * 60_000 + b" KV cache is needed, which is larger than the available KV "
        b"cache memory",
    ]  # fmt: skip
    slowest = max(seconds_of(data) for data in hard)
    assert slowest < SECONDS
