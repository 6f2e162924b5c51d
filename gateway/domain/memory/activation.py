"""What the language model and the sampler take at their peak while vLLM profiles them."""

from gateway.domain.memory.calibration import Calibration
from gateway.domain.memory.dtypes import model_bytes
from gateway.domain.memory.plan import GIB, Flags, Span, TextSpec

_LANGUAGE_MODEL_MARGIN = (0.5, 1.5)
"""Only few logs show this term, since the sampler or the tower is larger in most."""


def sampler_peak(text: TextSpec, flags: Flags, calibration: Calibration) -> Span:
    """One row of logits for each sequence of the largest batch, over the whole vocabulary on every rank. With experts
    their workspace stays beside it.
    """
    logits = (flags.max_num_seqs or 0) * text.vocab
    rows = Span(*(logits * size / GIB for size in calibration.logit_bytes(model_bytes(flags))))
    workspace = _expert_workspace(text, flags) if calibration.keeps_workspace else 0.0
    return Span.total(rows, Span.around(workspace, workspace / 2))


def _expert_workspace(text: TextSpec, flags: Flags) -> float:
    """Each token once for each of its experts: the inner layer thrice, and the outer one."""
    if text.moe is None:
        return 0.0
    width = 3 * text.moe.intermediate / flags.tensor_parallel_size + text.hidden
    return (flags.max_num_batched_tokens or 0) * text.moe.top_k * width * model_bytes(flags) / GIB


def language_model_peak(text: TextSpec, flags: Flags) -> Span:
    """A batch of the most tokens in one layer: residual and hidden state, and the inner layer of a gated MLP thrice.

    With experts each token is in the inner layers of several.
    """
    inner = text.intermediate
    if text.moe is not None:
        inner = max(inner if text.moe.every > 1 else 0, text.moe.top_k * text.moe.intermediate)
        inner += text.moe.shared_intermediate
    width = 2 * text.hidden + 3 * inner / flags.tensor_parallel_size
    expected = (flags.max_num_batched_tokens or 0) * width * model_bytes(flags) / GIB
    low, high = _LANGUAGE_MODEL_MARGIN
    return Span(low * expected, expected, high * expected)
