import pytest

from gateway.settings import Settings, SettingsError, load


def mistakes(**sources):
    with pytest.raises(SettingsError) as caught:
        load(**sources)
    return str(caught.value).splitlines()


def test_nothing_given_means_all_defaults():
    loaded = load()
    assert loaded.settings == Settings()
    assert loaded.origins == {}


def test_flag_beats_environment_beats_file():
    yaml = "server: {port: 1, host: h}\nqueue: {requests: 5, wait_seconds: 1}"
    environment = {"GATEWAY_SERVER__PORT": "2", "GATEWAY_QUEUE__REQUESTS": "6"}
    loaded = load(file_text=yaml, file_name="g.yaml", environment=environment, flags={"server.port": "3"})
    assert loaded.settings.server.port == 3
    assert loaded.settings.queue.requests == 6
    assert loaded.settings.queue.wait_seconds == 1
    assert loaded.origins == {
        "server.port": "flag",
        "server.host": "file g.yaml",
        "queue.requests": "environment",
        "queue.wait_seconds": "file g.yaml",
    }


def test_every_mistake_is_named_with_its_source_at_once():
    lines = mistakes(
        file_text="images: {maxbytes: 5, verify: sometimes}\nnonsense: {a: 1}\nmodels: [{family: x}]",
        file_name="g.yaml",
        environment={"GATEWAY_SERVER__PORT": "many"},
        flags={"queue.lenght": "1"},
    )
    found = "\n".join(lines)
    for part in (
        "images.maxbytes (file g.yaml): there is no such setting",
        "images.verify (file g.yaml): Input should be 'full' or 'header'",
        "nonsense (file g.yaml): there is no such setting",
        "models.0.name (file g.yaml): Field required",
        "server.port (environment)",
        "queue.lenght (flag): there is no such setting",
    ):
        assert part in found


def test_a_file_that_is_not_yaml_says_so():
    assert mistakes(file_text="a: [", file_name="g.yaml")[0].startswith("file g.yaml: not YAML")


def test_a_file_that_is_a_list_says_what_it_must_be():
    assert "must hold sections" in mistakes(file_text="- a", file_name="g.yaml")[0]


def test_an_empty_file_is_no_mistake():
    assert load(file_text="# nothing yet\n").settings == Settings()


def test_an_environment_value_that_is_not_yaml_says_how_to_write_it():
    lines = mistakes(environment={"GATEWAY_HISTORY__MARKER": "[cut"})
    assert "GATEWAY_HISTORY__MARKER: '[cut' is not a YAML value; quote it" in lines


def test_variables_that_kubernetes_sets_for_a_service_called_gateway_are_not_settings():
    assert load(environment={"GATEWAY_PORT": "tcp://10.0.0.1:80", "GATEWAY_SERVICE_HOST": "10.0.0.1"}).origins == {}


def test_a_section_given_as_a_plain_value_is_named():
    lines = mistakes(file_text="server: 3", file_name="g.yaml", flags={"server.port": "1"})
    assert "server.port (flag): server is set to a plain value elsewhere" in lines


def test_settings_cannot_be_changed_after_the_check():
    with pytest.raises(ValueError, match="frozen"):
        Settings().server.port = 1
