"""The list of bypass bodies against the installed vLLM: its own readers see in them what is written down.

A new type of content part, a new field of a request, or another reading of a body in a newer vLLM fails here. Nothing
is served: vLLM's modules are imported by its own interpreter.
"""

import json
import os
from pathlib import Path

import pytest

from tests.support.bypass import LIST, ask_vllm

SEEN = json.loads((Path(__file__).parents[1] / "data" / "bypass" / "seen.json").read_text())

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def view():
    return ask_vllm(os.environ["VLLM_PYTHON"])


def test_content_parts_have_no_types_and_no_keys_beside_those_of_the_list(view):
    named = {*LIST["keys"], *LIST["text_types"], *(kind for kinds in LIST["own_types"].values() for kind in kinds)}
    assert set(view["part_types"]) == named
    assert view["part_fields"] == SEEN["part_fields"]


def test_requests_have_no_fields_beside_those_that_were_looked_at(view):
    for name, fields in view["fields"].items():
        assert fields == SEEN["fields"][name], name


def test_it_sees_in_every_body_what_is_written_down(view, report_line):
    for slot, marks in view["seen"].items():
        assert marks == SEEN["seen"][slot], slot
    bodies = sum(map(len, view["seen"].values()))
    report_line(
        f"bypass: {bodies} bodies in {len(view['seen'])} places, read by vLLM {view['version']} as written down"
    )
