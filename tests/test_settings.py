import re

import pytest

from gateway.policies import rungs_that_do_nothing, upstreams_of
from gateway.settings import Settings
from gateway.settings.slo import LevelSettings
from gateway.settings_sources import SettingsError, load
from tests.support.settings_mistakes import mistakes


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
        file_text="images: {maxbytes: 5, verify: sometimes}\nnonsense: {a: 1}\nmodels: [{family: x}]\n"
        "output_reservation: most",
        file_name="g.yaml",
        environment={"GATEWAY_SERVER__PORT": "many"},
        flags={"queue.lenght": "1"},
    )
    found = "\n".join(lines)
    for part in (
        "images.maxbytes (file g.yaml): there is no such setting",
        "images.verify (file g.yaml): Input should be 'full' or 'header'",
        "nonsense (file g.yaml): there is no such setting",
        "output_reservation (file g.yaml): Input should be 'quantile', 'max' or 'none'",
        "models.0.name (file g.yaml): Field required",
        "server.port (environment)",
        "queue.lenght (flag): there is no such setting",
    ):
        assert part in found


def test_a_file_that_is_not_yaml_says_so():
    assert mistakes(file_text="a: [", file_name="g.yaml")[0].startswith("file g.yaml: not YAML at line 1: ")
    assert mistakes(file_text="\x00", file_name="g.yaml") == ["file g.yaml: not YAML"]


def test_a_file_that_is_a_list_says_what_it_must_be():
    assert "must hold sections" in mistakes(file_text="- a", file_name="g.yaml")[0]


def test_an_empty_file_is_no_mistake():
    assert load(file_text="# nothing yet\n").settings == Settings()


def test_an_environment_value_that_is_not_yaml_says_how_to_write_it():
    lines = mistakes(environment={"GATEWAY_IMAGES__FORMATS": "[png"})
    assert "GATEWAY_IMAGES__FORMATS: its value is not YAML; quote it" in lines


def test_variables_that_kubernetes_sets_for_a_service_called_gateway_are_not_settings():
    assert load(environment={"GATEWAY_PORT": "tcp://10.0.0.1:80", "GATEWAY_SERVICE_HOST": "10.0.0.1"}).origins == {}


def test_every_name_can_be_set_in_the_environment_those_without_a_section_too():
    loaded = load(environment={"GATEWAY_MODELS": "[{name: m}]", "GATEWAY_QUEUE": "{requests: 3}"})
    assert [model.name for model in loaded.settings.models] == ["m"]
    assert loaded.settings.queue.requests == 3
    assert loaded.origins == {"models": "environment", "queue.requests": "environment"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("server.host", "::"),
        ("server.host", "1"),
        ("history.marker", "[image removed]"),
        ("history.marker", "no: images"),
        ("history.marker", "null"),
        ("history.mode", "off"),
        ("resize.preset", "off"),
        ("upstream.api_key_file", "/run/secrets/1"),
    ],
)
def test_a_text_is_taken_as_it_stands(name, text):
    variable = "GATEWAY_" + name.upper().replace(".", "__")
    for sources in ({"flags": {name: text}}, {"environment": {variable: text}}):
        settings = load(**sources, read_secret=lambda path: "k").settings
        section, field = name.split(".")
        assert getattr(getattr(settings, section), field) == text


def test_all_else_is_read_as_yaml():
    flags = {"server.overload_status": "null", "log.requests": "no", "images.formats": "[png]", "server.port": "81"}
    settings = load(flags=flags).settings
    assert (settings.server.overload_status, settings.log.requests, settings.server.port) == (None, False, 81)
    assert settings.images.formats == {"png"}


@pytest.mark.parametrize("name", ["nonsense", "server.nonsense", "server.port.deeper", "models.0.name"])
def test_a_name_that_does_not_exist_is_told_whatever_its_value(name):
    assert any(line.startswith(name) or name.startswith(line.split(" ")[0]) for line in mistakes(flags={name: "1"}))


@pytest.mark.parametrize("text", ["slo:", "tenants: [{name: default, slo: }]", "pressure:\nstreaming:"])
def test_a_section_with_nothing_behind_its_name_is_as_if_it_were_not_there(text):
    settings = load(file_text=text).settings
    assert settings.model_copy(update={"tenants": ()}) == Settings()
    assert all(tenant.slo == LevelSettings() for tenant in settings.tenants)


def test_a_bare_off_in_the_file_is_a_word():
    settings = load(file_text="history: {mode: off}\nresize: {preset: off}").settings
    assert (settings.history.mode, settings.resize.preset) == ("off", "off")


class TestApiKey:
    @staticmethod
    def key_of(**sources):
        loaded = load(**sources)
        key = loaded.settings.upstream.api_key
        assert key is None or key.get_secret_value() not in f"{loaded.settings!r} {loaded.settings}"
        return key and key.get_secret_value(), loaded.origins.get("upstream.api_key")

    def test_none_by_default(self):
        assert self.key_of() == (None, None)

    def test_flag_environment_secret_file_file(self, tmp_path):
        secret = tmp_path / "key"
        secret.write_text("from-secret\n")
        yaml = {"file_text": "upstream: {api_key: from-yaml}", "file_name": "g.yaml"}
        environment = {"GATEWAY_UPSTREAM__API_KEY_FILE": str(secret)}
        assert self.key_of(**yaml) == ("from-yaml", "file g.yaml")
        assert self.key_of(**yaml, environment=environment) == ("from-secret", f"secret file {secret}")
        environment["GATEWAY_UPSTREAM__API_KEY"] = "9021077340"
        assert self.key_of(**yaml, environment=environment) == ("9021077340", "environment")
        flags = {"upstream.api_key": "from-flag"}
        assert self.key_of(**yaml, environment=environment, flags=flags) == ("from-flag", "flag")

    def test_a_secret_file_that_cannot_be_read_is_named(self, tmp_path):
        missing, binary = tmp_path / "missing", tmp_path / "binary"
        binary.write_bytes(b"\xff")
        told = "upstream.api_key_file (flag): {}: {}".format
        assert mistakes(flags={"upstream.api_key_file": str(missing)}) == [told(missing, "No such file or directory")]
        assert mistakes(flags={"upstream.api_key_file": str(binary)}) == [told(binary, "is not UTF-8")]

    @pytest.mark.parametrize("key", ["", "sec ret", "sec\nret", "s\u00e9cret"])
    def test_no_mistake_repeats_the_key(self, key):
        (line,) = mistakes(flags={"upstream.api_key": key})
        assert line.startswith("upstream.api_key (flag): must be printable ASCII")
        assert "ret" not in line.removeprefix("upstream.api_key (flag): must be printable ASCII")

    def test_nor_does_a_mistake_beside_it(self):
        assert "hidden" not in mistakes(file_text="upstream: {api_key: hidden}\nx: [", file_name="g.yaml")[0]
        assert "hidden" not in "".join(mistakes(environment={"GATEWAY_UPSTREAM__APIKEY": "[hidden"}))


def test_a_section_given_as_a_plain_value_is_named():
    lines = mistakes(file_text="server: 3", file_name="g.yaml", flags={"server.port": "1"})
    assert "server.port (flag): server is set to a plain value elsewhere" in lines


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("queue: {requests: 3}\nserver: {port: 1}\nqueue: {wait_seconds: 1}", 3),
        ("queue:\n  requests: 3\n  requests: 4\n", 3),
        ("models:\n- {name: a}\n- {name: b, name: c}", 3),
    ],
)
def test_a_name_that_is_there_twice_is_told_before_one_of_its_values_gets_lost(text, line):
    (told,) = mistakes(file_text=text, file_name="g.yaml")
    assert told.startswith(f"file g.yaml: not YAML at line {line}: '")
    assert told.endswith("is there twice")


def test_what_contains_itself_is_told():
    (told,) = mistakes(file_text="server: &here\n  host: *here", file_name="g.yaml")
    assert told == "file g.yaml: not YAML at line 1: found unconstructable recursive node"


def test_a_section_whose_every_line_is_commented_out_is_as_if_it_were_not_there():
    text = "queue:\n  # requests: 5\nimages:\n  remote:\nmodels:\n"
    assert load(file_text=text).settings == Settings()
    assert load(file_text=text, flags={"queue.requests": "5"}).settings.queue.requests == 5


def test_a_value_with_nothing_behind_its_name_is_still_a_mistake():
    assert len(mistakes(file_text="queue: {requests: }\nnonsense:\n")) == 2


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"queue": "3"}, "queue (flag): must hold names and values, such as {name: value}"),
        ({"models": "[qwen]"}, "models.0 (flag): must hold names and values, such as {name: value}"),
        ({"models": "qwen"}, "models (flag): must be a list, such as [one, another]"),
        ({"images.formats": "png"}, "images.formats (flag): must be a list, such as [one, another]"),
        ({"upstream.url": "vllm:8000"}, "upstream.url (flag): must begin with http:// or https://"),
        ({"upstream.url": "10.0.0.1:8000"}, "upstream.url (flag): must be an address such as http://127.0.0.1:8000"),
    ],
)
def test_a_mistake_says_what_to_write_instead(flags, told):
    assert mistakes(flags=flags) == [told]


@pytest.mark.parametrize("end", ["/v1", "/v1/", "/engine/v1"])
def test_an_upstream_with_the_route_of_the_sdk_is_a_mistake_not_a_server_that_is_never_up(end):
    told = "upstream.url (flag): leave out /v1: the gateway adds each route to the address itself"
    assert mistakes(flags={"upstream.url": f"http://vllm:8000{end}"}) == [told]


@pytest.mark.parametrize("end", ["?key=1", "/#part", "/?"])
def test_an_upstream_with_a_query_is_a_mistake(end):
    told = "upstream.url (flag): leave out what begins with ? or #: the gateway adds each route to the address itself"
    assert mistakes(flags={"upstream.url": f"http://vllm:8000{end}"}) == [told]


@pytest.mark.parametrize("login", ["user:secret", "user", ":secret"])
def test_a_password_in_the_upstream_is_a_mistake_that_repeats_none_of_it(login):
    told = "upstream.url (flag): leave out what stands before @: a key goes into api_key, which is shown nowhere"
    assert mistakes(flags={"upstream.url": f"http://{login}@vllm:8000"}) == [told]


def test_an_upstream_below_a_path_is_none():
    assert load(flags={"upstream.url": "http://proxy/engine-1/"}).settings.upstream.url.path == "/engine-1/"


@pytest.mark.parametrize("value", ["off", "5", "0.5"])
def test_a_time_to_keep_alive_after_or_none(value):
    said = None if value == "off" else float(value)
    for source in (
        {"file_text": f"streaming: {{keep_alive_after_seconds: {value}}}", "file_name": "g.yaml"},
        {"environment": {"GATEWAY_STREAMING__KEEP_ALIVE_AFTER_SECONDS": value}},
        {"flags": {"streaming.keep_alive_after_seconds": value}},
    ):
        assert load(**source).settings.streaming.keep_alive_after_seconds == said


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("streaming: {keep_alive_every_seconds: 5}", "does nothing without keep_alive_after_seconds"),
        ("streaming: {keep_alive_after_seconds: 0}", "greater than 0"),
        ("streaming: {keep_alive_after_seconds: soon}", "a valid number"),
        ("streaming: {keep_alive_after_seconds: 1, keep_alive_every_seconds: 0.5}", "greater than or equal to 1"),
        ("tokens: {answer: exact}", "'upstream' or 'estimate'"),
    ],
)
def test_mistakes_of_keeping_alive_and_counting_are_told(text, told):
    with pytest.raises(SettingsError, match=told):
        load(file_text=text, file_name="g.yaml")


def test_settings_cannot_be_changed_after_the_check():
    with pytest.raises(ValueError, match="frozen"):
        Settings().server.port = 1


class TestTenants:
    ONE, OTHER = "ab" * 32, "cd" * 32

    def test_their_defaults(self):
        (tenant,) = load(file_text=f"tenants: [{{name: gold, key_sha256: [{self.ONE.upper()}]}}]").settings.tenants
        assert (tenant.key_sha256, tenant.weight) == ((self.ONE,), 1.0)
        assert (tenant.priority, tenant.most_urgent) == ("default", "interactive")

    def test_all_their_mistakes_are_named_at_once_and_no_key_is_shown(self):
        secret = "sk-a-key-where-its-hash-should-be"
        text = f"""
        tenants:
          - {{name: gold, key_sha256: [{self.ONE}, {self.ONE.upper()}], weight: 0}}
          - {{name: gold, key_sha256: [{secret}], priority: critical}}
          - {{name: slow, key_sha256: [{self.ONE}], most_urgent: batch, weights: 2}}
          - {{name: keyless, priority: soon}}
          - {{name: default, key_sha256: [{self.OTHER}], weight: .nan}}
          - nobody
          - {{name: [], key_sha256: [5], priority: []}}
        """
        lines = mistakes(file_text=text, file_name="g.yaml")
        assert secret not in "\n".join(lines)
        where = " (file g.yaml): "
        no_digest = "must be 64 hex digits: the SHA-256 of a key, as `printf %s KEY | sha256sum` prints it"
        assert [line for line in lines if "key_sha256" in line] == [
            f"tenants.0.key_sha256.1{where}is there twice; a key belongs to one tenant",
            f"tenants.2.key_sha256.0{where}is there twice; a key belongs to one tenant",
            f"tenants.3.key_sha256{where}all but the tenant `default` need a key, and that one has none",
            f"tenants.4.key_sha256{where}all but the tenant `default` need a key, and that one has none",
            f"tenants.1.key_sha256.0{where}{no_digest}",
            f"tenants.6.key_sha256.0{where}Input should be a valid string",
        ]
        assert {line.partition(where)[0]: line.partition(where)[2] for line in lines if "key_sha256" not in line} == {
            "tenants.1.name": "another tenant has this name",
            "tenants.1.priority": "critical is more urgent than most_urgent allows, which is interactive",
            "tenants.2.priority": "default is more urgent than most_urgent allows, which is batch",
            "tenants.0.weight": "Input should be greater than or equal to 0.001",
            "tenants.2.weights": "there is no such setting",
            "tenants.3.priority": "Input should be 'critical', 'interactive', 'default' or 'batch'",
            "tenants.4.weight": "Input should be less than or equal to 1000",
            "tenants.5": "must hold names and values, such as {name: value}",
            "tenants.6.name": "Input should be a valid string",
            "tenants.6.priority": "Input should be 'critical', 'interactive', 'default' or 'batch'",
        }

    def test_sixteen_can_be_told_apart_and_the_others(self):
        tenants = [{"name": f"t{number}", "key_sha256": [f"{number:064x}"]} for number in range(17)]
        others = {"name": "default", "weight": 0.5}
        assert len(Settings.model_validate({"tenants": [*tenants[:16], others]}).tenants) == 17
        (line,) = mistakes(environment={"GATEWAY_TENANTS": str(tenants)})
        assert line.startswith("tenants (environment): at most 16 can be told apart besides `default`")

    @pytest.mark.parametrize("value", ["gold", "{name: gold}", "5"])
    def test_what_is_no_list_is_told_so(self, value):
        assert mistakes(environment={"GATEWAY_TENANTS": value})[0].endswith("must be a list, such as [one, another]")


class TestSeveralUpstreams:
    def test_each_has_a_name_and_what_it_leaves_out_is_common(self):
        text = """
upstream: {api_key: sk-common, poll_seconds: 2}
upstreams:
  - {name: a, url: "http://10.0.0.1:8000", api_key: sk-a, kv_blocks: 500}
  - {url: "http://10.0.0.2:8000/engine/"}
budget: {sequences: 7, kv_blocks: 900}
"""
        a, b = upstreams_of(load(file_text=text, file_name="g.yaml").settings)
        assert (a.name, a.url, a.key, a.kv_blocks, a.sequences) == ("a", "http://10.0.0.1:8000/", "sk-a", 500, 7)
        assert (b.name, b.key, b.kv_blocks, b.sequences) == ("10.0.0.2:8000/engine", "sk-common", 900, 7)

    def test_one_alone_needs_no_name(self):
        (only,) = upstreams_of(load(flags={"upstream.url": "http://10.0.0.1:8000"}).settings)
        assert (only.name, only.url, only.key) == ("default", "http://10.0.0.1:8000/", None)

    def test_all_mistakes_are_named_at_once(self):
        text = """
upstream: {url: "http://10.0.0.9:8000"}
upstreams:
  - {name: a, url: "http://10.0.0.1:8000"}
  - {name: a, url: "http://10.0.0.2:8000"}
  - {name: c, url: "http://10.0.0.1:8000/"}
  - {name: "two words", url: "http://10.0.0.3:8000/v1"}
  - {name: d, url: "http://10.0.0.4:8000", kv_blocks: 0, seats: 4}
  - {name: e}
  - f
"""
        told = mistakes(file_text=text, file_name="g.yaml")
        assert told[:6] == [
            "upstream.url (file g.yaml): is given beside upstreams, which name all servers; keep one of the two",
            "upstreams.1.name (file g.yaml): another upstream has this name",
            "upstreams.2.url (file g.yaml): another upstream has this address",
            "upstreams.3.url (file g.yaml): leave out /v1: the gateway adds each route to the address itself",
            "upstreams.3.name (file g.yaml): String should match pattern '^[!-~]{1,64}$'",
            "upstreams.4.kv_blocks (file g.yaml): Input should be greater than 0",
        ]
        assert told[6:] == [
            "upstreams.4.seats (file g.yaml): there is no such setting",
            "upstreams.5.url (file g.yaml): Field required",
            "upstreams.6 (file g.yaml): must hold names and values, such as {name: value}",
        ]

    def test_their_keys_may_be_in_files(self, tmp_path):
        (tmp_path / "key").write_text("sk-a\n")
        text = f"""
upstreams:
  - {{name: a, url: "http://10.0.0.1:8000", api_key_file: {tmp_path / "key"}}}
  - {{name: b, url: "http://10.0.0.2:8000", api_key_file: {tmp_path / "none"}}}
"""
        assert mistakes(file_text=text, file_name="g.yaml") == [
            f"upstreams.1.api_key_file (file g.yaml): {tmp_path / 'none'}: No such file or directory"
        ]
        a, _ = upstreams_of(load(file_text=text.replace("none", "key"), file_name="g.yaml").settings)
        assert a.key == "sk-a"

    def test_what_is_no_list_is_said_so(self):
        assert mistakes(flags={"upstreams": "http://a"}) == ["upstreams (flag): must be a list, such as [one, another]"]


class TestPressure:
    """The ladder: what is set, what is on with its defaults, and what contradicts the order of the rungs."""

    def test_every_rung_is_off_unless_it_is_set(self):
        assert load().settings.pressure.rungs == {}
        assert load(file_text="pressure: {shed: off, refuse: false, shrink: }").settings.pressure.rungs == {}

    def test_a_rung_that_is_on_has_its_defaults(self):
        pressure = load(file_text="pressure: {shrink: on, shed: {enter: 5}, refuse: {enter: 6}}").settings.pressure
        assert list(pressure.rungs) == ["shrink", "shed", "refuse"]
        assert (pressure.shrink.enter, pressure.shrink.leave, pressure.shrink.preset) == (2.0, 0.95, "ocr")
        assert (pressure.shed.enter, pressure.shed.leave, pressure.shed.priority) == (5.0, 2.0, "batch")

    def test_all_defaults_together_are_in_order(self):
        text = "pressure: {shrink: on, history: on, max_tokens: on, shed: on, refuse: on}"
        assert len(load(file_text=text).settings.pressure.rungs) == 5

    def test_the_environment_and_flags_set_single_words(self):
        environment = {"GATEWAY_PRESSURE__SHED__PRIORITY": "default", "GATEWAY_PRESSURE__SHRINK": "on"}
        pressure = load(environment=environment, flags={"pressure.max_tokens.tokens": "64"}).settings.pressure
        assert (pressure.shed.priority, pressure.shrink.preset, pressure.max_tokens.tokens) == ("default", "ocr", 64)

    def test_every_mistake_is_named_at_once(self):
        text = """
        pressure:
          shrink: {enter: 2, leave: 2, preset: tiny}
          history: {enter: 1.5, keep: 0}
          max_tokens: {enter: "3", leave: .nan}
          shed: {enter: 1.75, levae: 1, priority: critical}
          refuse: yes please
          panic: on
        """
        lines = mistakes(file_text=text, file_name="g.yaml")
        told = {(name, what) for name, _, what in (re.split(r" \((.*?)\): ", line, maxsplit=1) for line in lines)}
        assert told >= {
            ("pressure.shrink.leave", "2 is not below enter, which is 2"),
            ("pressure.history.enter", "1.5 is below that of shrink, a gentler rung, which is 2"),
            ("pressure.history.leave", "1 is below that of shrink, a gentler rung, which is 2"),
            ("pressure.shed.enter", "1.75 is below that of shrink, a gentler rung, which is 2"),
            ("pressure.shrink.preset", "Input should be 'thumbnail', 'ocr' or 'detail'"),
            ("pressure.max_tokens.enter", "Input should be a valid number"),
            ("pressure.refuse", "must hold names and values, such as {name: value}"),
            ("pressure.shed.priority", "Input should be 'interactive', 'default' or 'batch'"),
            ("pressure.shed.levae", "there is no such setting"),
            ("pressure.panic", "there is no such setting"),
        }

    def test_what_is_no_section_has_no_order(self):
        assert mistakes(file_text="pressure: 3", file_name="g.yaml") == [
            "pressure (file g.yaml): must hold names and values, such as {name: value}"
        ]


class TestFallbacks:
    def test_each_model_may_have_one(self):
        text = "models: [{name: a, fallback: b}, {name: b, fallback: c}, {name: c}]"
        models = load(file_text=text, file_name="g.yaml").settings.models
        assert [model.fallback for model in models] == ["b", "c", None]

    def test_all_mistakes_are_named_at_once(self):
        text = """
models:
  - {name: a, fallback: b}
  - {name: b, fallback: a}
  - {name: c, fallback: c}
  - {name: d, fallback: a}
  - {name: e, fallback: nobody}
  - {name: "", fallback: a, colour: red}
  - f
"""
        assert mistakes(file_text=text, file_name="g.yaml") == [
            "models.0.fallback (file g.yaml): goes in a circle: a -> b -> a",
            "models.1.fallback (file g.yaml): goes in a circle: b -> a -> b",
            "models.2.fallback (file g.yaml): goes in a circle: c -> c",
            "models.4.fallback (file g.yaml): there is no model 'nobody' among models; name it there too",
            "models.5.name (file g.yaml): String should have at least 1 character",
            "models.5.colour (file g.yaml): there is no such setting",
            "models.6 (file g.yaml): must hold names and values, such as {name: value}",
        ]

    def test_aliases_lead_to_one_model_each(self):
        text = """
models:
  - {name: a, aliases: [x, y, x]}
  - {name: b, aliases: [y, a]}
  - {name: c, aliases: [c, ""]}
"""
        assert mistakes(file_text=text, file_name="g.yaml") == [
            "models.0.aliases.2 (file g.yaml): 'x' is an alias already; a name leads to one model",
            "models.1.aliases.0 (file g.yaml): 'y' is an alias already; a name leads to one model",
            "models.1.aliases.1 (file g.yaml): 'a' is the name of a model of this list; a name leads to one model",
            "models.2.aliases.0 (file g.yaml): 'c' is the name of a model of this list; a name leads to one model",
            "models.2.aliases.1 (file g.yaml): String should have at least 1 character",
        ]

    def test_a_rung_that_no_model_takes_does_nothing(self):
        settings = load(flags={"pressure.fallback": "on", "models": "[{name: a}]"}).settings
        assert rungs_that_do_nothing(settings) == [
            "pressure.fallback is set, but no model has another to fall back to: set models[].fallback."
        ]
        settings = load(flags={"pressure.fallback": "on", "models": "[{name: a, fallback: b}, {name: b}]"}).settings
        assert not rungs_that_do_nothing(settings)
