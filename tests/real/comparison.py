"""Sends requests through a gateway with OpenAI's SDK and compares its prediction with what vLLM counted."""

import concurrent.futures
from collections.abc import Sequence
from typing import NamedTuple

import openai

from tests.real.varied_requests import Case

CONNECTIONS = 3


class Difference(NamedTuple):
    """A request whose prediction was wrong, in prompt tokens, or that failed (`problem`)."""

    name: str
    predicted: int | None = None
    counted: int | None = None
    problem: str | None = None


class Comparison(NamedTuple):
    compared: int
    differences: list[Difference]

    def __str__(self) -> str:
        return f"requests compared: {self.compared}, exact: {self.compared - len(self.differences)}"


def compare(gateway_url: str, model: str, cases: Sequence[Case]) -> Comparison:
    """The header `x-gateway-prompt-tokens` of every answer against its `usage.prompt_tokens`."""
    client = openai.OpenAI(base_url=f"{gateway_url}/v1", api_key="none", max_retries=0, timeout=120)
    with client, concurrent.futures.ThreadPoolExecutor(CONNECTIONS) as pool:
        differences = list(pool.map(lambda case: _difference(client, model, case), cases))
    return Comparison(len(cases), [difference for difference in differences if difference])


def _difference(client: openai.OpenAI, model: str, case: Case) -> Difference | None:
    try:
        answer = client.chat.completions.with_raw_response.create(
            model=model, max_tokens=1, messages=[], extra_body=case.body, extra_headers=case.headers
        )
    except openai.APIStatusError as error:
        return Difference(case.name, problem=error.message)
    predicted = int(answer.headers["x-gateway-prompt-tokens"])
    counted = answer.parse().usage.prompt_tokens
    return None if predicted == counted else Difference(case.name, predicted, counted)
