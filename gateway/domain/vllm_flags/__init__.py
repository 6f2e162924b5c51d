"""The command line of `vllm serve`: its words, and which flags there are, were, and never were."""
