"""Who may see the status page, as the settings say it."""

import pytest

from gateway.policies import page_access_of
from gateway.server.page_access import Audience, PageAccess
from gateway.settings_sources import load
from tests.support.settings_mistakes import mistakes


def access(text=""):
    return page_access_of(load(file_text=text, file_name="g.yaml").settings)


def test_this_machine_alone_unless_told_otherwise():
    assert access() == PageAccess(Audience.LOOPBACK, frozenset())


@pytest.mark.parametrize("word", list(Audience))
def test_each_word_is_one_of_the_doors(word):
    assert access(f"status_page: {{visible_to: {word}}}").audience is word


def test_names_are_compared_in_lower_case():
    text = "status_page: {visible_to: everyone, hosts: [Gateway.Example, vlm]}"
    assert access(text).hosts == {"gateway.example", "vlm"}


def test_all_mistakes_are_named():
    text = "status_page: {visible_to: off, hosts: ['http://gateway.example', 'gateway:80', '']}"
    sentence = "must be a host's name as browsers send it, without http:// and without a port"
    assert mistakes(file_text=text, file_name="g.yaml") == [
        "status_page.visible_to (file g.yaml): Input should be 'loopback', 'everyone' or 'nobody'",
        *[f"status_page.hosts.{index} (file g.yaml): {sentence}" for index in range(3)],
    ]
