"""vlm-gateway: admission control in front of vLLM serving vision-language models."""

__version__ = "0.1.0"
