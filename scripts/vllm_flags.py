"""The flags of `vllm serve`, from its own parser, as the data of gateway/domain/vllm_flags/real_flags.py.

    .venv-vllm/bin/python scripts/vllm_flags.py > gateway/domain/vllm_flags/real_flags.py

Runs with the interpreter that has vLLM, and needs nothing of the gateway. tests/real compares.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORKAROUNDS = ROOT / "tests" / "real" / "workarounds"
_COLUMNS = 118
_HEAD = '''"""Every flag of `vllm serve` {version}, written by scripts/vllm_flags.py from its own parser. Do not edit.

Boolean flags have a twin with `--no-` before the name, which is not listed; `--a.b` sets a key of the JSON of `--a`.
"""

VERSION = "{version}"

REAL_FLAGS: frozenset[str] = frozenset(
    """
'''
_TAIL = '''""".split()  # noqa: SIM905  a line for each would be three hundred
)
'''


def flags() -> list[str]:
    """Long names without dashes before them, sorted."""
    from vllm.entrypoints.launchers.cli_args import make_arg_parser  # noqa: PLC0415  only this interpreter has it
    from vllm.utils.argparse_utils import FlexibleArgumentParser  # noqa: PLC0415

    parser = make_arg_parser(FlexibleArgumentParser())
    names = {
        option.removeprefix("--").replace("_", "-")
        for action in parser._actions  # noqa: SLF001  argparse has no other way to list them
        for option in action.option_strings
        if option.startswith("--")
    }
    return sorted(name for name in names if not (name.startswith("no-") and name.removeprefix("no-") in names))


def module(names: list[str], version: str) -> str:
    """The text of real_flags.py."""
    lines, line = [], ""
    for name in names:
        if len(line) + len(name) >= _COLUMNS:
            lines.append(line)
            line = ""
        line = f"{line} {name}".strip()
    return _HEAD.format(version=version) + "\n".join([*lines, line]) + "\n" + _TAIL


def main() -> None:
    if str(WORKAROUNDS) not in os.environ.get("PYTHONPATH", ""):
        # What is broken in the CPU build is worked round when the interpreter starts.
        environment = os.environ | {"PYTHONPATH": str(WORKAROUNDS), "VLLM_LOGGING_LEVEL": "ERROR"}
        os.execve(sys.executable, [sys.executable, __file__], environment)  # noqa: S606  itself once more
    import vllm  # noqa: PLC0415

    sys.stdout.write(module(flags(), vllm.__version__.partition("+")[0]))


if __name__ == "__main__":
    main()
