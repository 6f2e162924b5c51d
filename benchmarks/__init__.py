"""Benchmarks of the gateway beside its peers. `python -m benchmarks --help` says what each scenario measures."""
