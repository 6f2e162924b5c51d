"""A stand-in for vLLM 0.32 that keeps its HTTP contract. Imports nothing from the rest of gateway."""
