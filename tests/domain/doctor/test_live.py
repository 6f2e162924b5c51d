"""A running server, by what it tells of itself."""

from gateway.domain.doctor.diagnosis import Ending, diagnose
from gateway.domain.doctor.live import log_of_server
from gateway.domain.doctor.measured import Term

LABELS = {
    "num_gpu_blocks": "96", "block_size": "128", "effective_attention_block_size": "128", "cache_dtype": "auto",
    "kv_cache_size_tokens": "12288", "kv_cache_max_concurrency": "1.5", "gpu_memory_utilization": "0.92",
    "kv_cache_memory_bytes": "None", "num_gpu_blocks_override": "96",
}  # fmt: skip


def test_the_labels_are_readings():
    log = log_of_server(LABELS, "0.32.0", "m", 8192)
    readings = {term: reading.value for term, reading in log.start.readings.items()}
    assert readings == {
        Term.UTILISATION: 0.92, Term.KV_BLOCKS: 96, Term.KV_TOKENS: 12_288, Term.CONCURRENCY: 1.5,
        Term.BLOCK_TOKENS: 128, Term.CONTEXT: 8192, Term.CONCURRENCY_CONTEXT: 8192,
    }  # fmt: skip
    found = diagnose(log)
    assert (found.ending, found.contradictions) == (Ending.STARTED, ())
    assert [note.flag for note in found.flag_notes] == ["--num-gpu-blocks-override"]


def test_an_older_server_tells_less():
    log = log_of_server({"num_gpu_blocks": "2114", "block_size": "16"}, None, None, None)
    assert {term: reading.value for term, reading in log.start.readings.items()} == {
        Term.KV_BLOCKS: 2114,
        Term.BLOCK_TOKENS: 16,
    }


def test_what_is_no_number_is_not_read():
    assert (
        log_of_server(
            {"num_gpu_blocks": "None", "block_size": "x", "gpu_memory_utilization": "0"}, "v", "m", 0
        ).start.readings
        == {}
    )


def test_numbers_of_a_server_that_cannot_be_true_are_told():
    log = log_of_server(LABELS | {"kv_cache_size_tokens": "99999"}, "0.32.0", "Qwen/Qwen2.5-VL-3B-Instruct", 8192)
    assert "1041.66 a block, and a block has 128." in diagnose(log).contradictions[-1].text
