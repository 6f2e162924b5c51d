"""A text that every server counts alike, from which is seen how long its model's tokens are: half of it prose, half of
it what programs send. The answers are read as those of calibration are.
"""

import msgspec

SHORT = "x"
SAMPLE = (
    "Please look at the second page of the attached report and tell me which of the three suppliers raised its prices "
    "after March, by how much, and whether the footnote on delivery times still holds. If the table does not say so "
    "clearly, answer that you cannot tell; do not guess. Keep it short, and name the row that you used.\n"
    '{"task": "extract", "fields": [{"name": "invoice_no", "type": "string"}, {"name": "total", "type": "number"}], '
    '"page": 2, "id": "a3f9c1d0-77b2", "url": "https://files.example.com/r/2026-03-14_Q1.pdf?rev=17"}\n'
    "| Supplier | Feb 2026 | Apr 2026 |\n|---|---:|---:|\n| Nord-West AG | 1,204.50 | 1,310.00 |\n"
)
MORE_BYTES = len(SAMPLE.encode()) - len(SHORT)


def question(model: str, text: str) -> bytes:
    """The body for `/tokenize`: a conversation of one message."""
    return msgspec.json.encode({"model": model, "messages": [{"role": "user", "content": text}]})
