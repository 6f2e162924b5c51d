"""The same as `python -m benchmarks`, from any folder: `python benchmarks/run.py --help`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.__main__ import main

main()
