"""`python -m gateway` is `vlm-gateway`."""

from gateway.cli import main

main()
