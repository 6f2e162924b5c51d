"""What a start-up log of vLLM says: lines in, numbers, the phase that was reached, what failed and why out."""
