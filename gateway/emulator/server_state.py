"""What all routes of one emulated server share, and the checks that depend on it."""

import time
from collections import Counter

from gateway.emulator.config import EmulatorConfig
from gateway.emulator.driver import Driver
from gateway.emulator.engine import Engine
from gateway.emulator.errors import engine_dead, queue_full, token_backlog_full, unknown_model
from gateway.emulator.faults import Faults
from gateway.emulator.preprocessing import Preprocessor
from gateway.emulator.response_store import ResponseStore


class ServerState:
    """One server: its engine, its preprocessing thread, its counters and what a test has broken."""

    def __init__(self, config: EmulatorConfig) -> None:
        self.config = config
        self.engine = Engine(config)
        self.driver = Driver(self.engine, config.step_cost)
        self.preprocessor = Preprocessor(config.preprocess_pixels_per_second)
        self.faults = Faults()
        self.responses = ResponseStore()
        self.started_at = time.time()
        self.rejections: Counter[str] = Counter()
        self.http_requests: Counter[tuple[str, str, str]] = Counter()

    def check_model(self, name: str | None) -> None:
        """A missing or empty name means the served model. Raises ApiError."""
        if name and name != self.config.model:
            raise unknown_model(name, self.config.model)

    def check_admission(self, sequences: int) -> None:
        """The queue limits of vLLM itself, looked at before and after preprocessing. Raises ApiError."""
        if self.driver.is_dead:
            raise engine_dead()
        requests_limit, tokens_limit = self.config.max_num_queued_reqs, self.config.max_num_queued_tokens
        if requests_limit is not None and self.engine.unfinished + sequences > requests_limit:
            self.rejections["max_num_queued_reqs"] += 1
            raise queue_full()
        if tokens_limit is not None and self.engine.prefilling_prompt_tokens >= tokens_limit:
            self.rejections["max_num_queued_tokens"] += 1
            raise token_backlog_full()
