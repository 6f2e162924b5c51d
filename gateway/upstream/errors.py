"""How talking to vLLM can fail. Plain exceptions: the pipeline turns them into what the client sees."""


class UpstreamError(Exception):
    """No usable answer came; the text says what happened, without addresses or bodies."""


class UpstreamDownError(UpstreamError):
    """No connection could be made, so nothing was sent: 503 for the client."""


class UpstreamBrokenError(UpstreamError):
    """The connection broke, or what came was no answer to pass on: 502 for the client."""


class UpstreamTimeoutError(UpstreamError):
    """vLLM was silent for too long, or took too long as a whole: 504 for the client."""
