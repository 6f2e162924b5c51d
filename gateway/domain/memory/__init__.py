"""What vLLM needs of a GPU's memory before it serves: model, card and flags in, terms and a verdict by phase out."""
