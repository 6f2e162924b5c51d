"""The client side towards vLLM: sending, polling, discovery."""
