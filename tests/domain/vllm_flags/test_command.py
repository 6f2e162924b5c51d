"""A pasted command in words: where it begins and ends, and which words belong to which flag."""

import pytest

from gateway.domain.vllm_flags.command import Command, Given, read_text, read_words


@pytest.mark.parametrize(
    "before",
    [
        "vllm serve m",
        "$ A=1 uv run vllm  serve m",
        "python3 -m vllm.entrypoints.openai.api_server m",
        "python -m vllm.entrypoints.api_server m",
        "docker run -p 8000:8000 --gpus all -m 8g vllm/vllm-openai m",
        "docker run vllm/vllm-openai@sha256:0a m",
        "docker run --gpus all rocm/vllm:latest vllm serve m",
        "serve m",
    ],
)
@pytest.mark.parametrize(
    "after", ["", " | tee log --x", " && y --x", " > log", " 2>&1", "; y --x", " ;", " &", " &> log"]
)
def test_only_what_is_vllms_is_read(before, after):
    read = read_text(f"{before} \\\n --port 80{after}")
    assert (read.is_whole, read.positions, read.given) == (True, ("m",), (Given("port", "", None, ("80",)),))


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("vllm/vllm-openai:v0.11.0", "0.11.0"),
        ("ghcr.io/x/vllm-openai:v0.9.0.1", "0.9.0"),
        ("vllm/vllm-openai:0.12-cu129", "0.12"),
        ("vllm/vllm-openai-rocm:v0.14.1", "0.14.1"),
        ("vllm/vllm-openai:latest", None),
        ("vllm/vllm-openai", None),
    ],
)
def test_the_version_of_an_image(image, version):
    assert read_text(f"docker run {image} --model m").version == version
    assert read_text(f"docker run {image} vllm serve m").version == version


@pytest.mark.parametrize(
    ("word", "name", "key", "equals"),
    [
        ("--max_model_len=8", "max-model-len", "", "8"),
        ("--a.b_c.d", "a", "b_c.d", None),
        ("-tp", "tensor-parallel-size", "", None),
        ("--tp", "tp", "", None),
        ("-O3", "optimization-level", "", None),
        ("-O", "optimization-level", "", None),
        ("--a=", "a", "", ""),
    ],
)
def test_names_are_long_and_have_dashes(word, name, key, equals):
    assert read_words([word]).given == (Given(name, key, equals, ()),)


def test_words_between_flags_are_kept_with_the_flag_before_them():
    assert read_words(["m", "--a", "1", "2", "--b=3", "4", "--c", "-1"]) == Command(
        is_whole=False,
        positions=("m",),
        given=(Given("a", "", None, ("1", "2")), Given("b", "", "3", ("4",)), Given("c", "", None, ("-1",))),
    )
    first, second, third = read_words(["--a", "1", "2", "--b=3", "4", "--c"]).given
    assert (first.value, first.more) == ("1", ("2",))
    assert (second.value, second.more) == ("3", ("4",))
    assert (third.value, third.more) == (None, ())


def test_a_line_that_is_no_whole_command_has_flags_too():
    assert read_text("--port 80 &&").given == (Given("port", "", None, ("80",)),)
    assert read_text("").given == ()


def test_a_quote_that_is_not_closed_is_an_error():
    with pytest.raises(ValueError, match="No closing quotation"):
        read_text("vllm serve 'm")


@pytest.mark.parametrize(
    "text",
    [
        """bash -c 'vllm serve m --a "b c"' && rest""",
        """sh -c "vllm serve m --a 'b c'" x""",
        """sh -c "vllm serve m --a \\"b c\\"\"""",
    ],
)
def test_a_command_in_quotes_ends_where_they_do(text):
    assert read_text(text).given == (Given("a", "", None, ("b c",)),)


def test_a_quote_before_the_command_that_is_closed_nowhere_is_left_alone():
    assert read_text("it's vllm serve m --a 1").given == (Given("a", "", None, ("1",)),)


@pytest.mark.parametrize("end", ["\\\n", "\\\r\n", "\\  \n", "^\r\n", "`\n", "\n"])
def test_lines_go_on_as_in_each_shell(end):
    assert read_text(f"vllm serve m {end} --a 1").given == (Given("a", "", None, ("1",)),)


def test_comments_and_blanks_that_pages_have_are_none_of_it():
    told = "# how we start it\nvllm serve m \\\n  --a\N{NO-BREAK SPACE}1 \\\n # --b 2 \\\n  --c x#y --d '# z'  # end"
    assert [(each.name, each.value) for each in read_text(told).given] == [("a", "1"), ("c", "x#y"), ("d", "# z")]
