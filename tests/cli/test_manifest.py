"""What starts vLLM, out of a manifest."""

import pytest

from gateway.cli.manifest import line_of

DEPLOYMENT = """
spec:
  template:
    spec:
      initContainers:
        - image: busybox
          command: ["sh", "-c", "sleep 1"]
      containers:
        - name: server
          image: vllm/vllm-openai:v0.11.0
          args: ["--model", "m", "--max-model-len", "8192"]
          livenessProbe:
            exec: {command: [curl, localhost]}
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('args: ["--model", "m", "--max-model-len", "8192"]', "--model m --max-model-len 8192"),
        ('["vllm", "serve", "m"]', "vllm serve m"),
        ("- --model\n- m\n- --max-model-len\n- 8192\n", "--model m --max-model-len 8192"),
        ('command: ["vllm", "serve"]\nargs: ["m"]', "vllm serve m"),
        ('command: ["/bin/sh", "-c"]\nargs: ["vllm serve m --seed 1"]', "/bin/sh -c 'vllm serve m --seed 1'"),
        ("services:\n  a:\n    command: --model m\n    image: vllm/vllm-openai:v0.9.0\n",
         "vllm/vllm-openai:v0.9.0 --model m"),
        ("args:\n  - --limit-mm-per-prompt\n  - '{\"video\": 0}'\n", "--limit-mm-per-prompt '{\"video\": 0}'"),
        (DEPLOYMENT, "vllm/vllm-openai:v0.11.0 --model m --max-model-len 8192"),
    ],
)  # fmt: skip
def test_a_manifest_amounts_to_a_line(text, line):
    assert line_of(text) == line


@pytest.mark.parametrize(
    "text", ["vllm serve m --port 80", "", "args: [", "image: x", "- name: a", "docker run x \\\n  - y", "- 2026-99-99"]
)
def test_what_is_no_manifest_stays_as_it_is(text):
    assert line_of(text) == text
