"""Start-up logs of vLLM for tests: the files of tests/data/vllm_logs, and text as a log."""

from pathlib import Path

from gateway.domain.doctor.diagnosis import Diagnosis, diagnose
from gateway.domain.doctor.lines import LineReader
from gateway.domain.doctor.reader import Log, LogReader

FOLDER = Path(__file__).resolve().parent.parent / "data" / "vllm_logs"
NAMES = sorted(path.name for path in FOLDER.glob("*.log"))


def read(log: str | bytes, *, piece_bytes: int = 1 << 16) -> Log:
    """What is read from a log that comes in pieces of that size."""
    data = log.encode() if isinstance(log, str) else log
    lines, reader = LineReader(), LogReader()
    for start in range(0, len(data), piece_bytes):
        for line in lines.feed(data[start : start + piece_bytes]):
            reader.take(line)
    for line in lines.end():
        reader.take(line)
    return reader.log


def diagnosed(log: str | bytes) -> Diagnosis:
    return diagnose(read(log))


def file_of(name: str) -> bytes:
    """The one file whose name begins so."""
    [path] = FOLDER.glob(f"{name}*.log")
    return path.read_bytes()


def error(message: str) -> str:
    """A line of an engine that failed."""
    return f"(EngineCore pid=7) ERROR 11-30 10:00:00 [core.py:1300] {message}\n"
