"""What a served model is: its processor configuration, tokenizer and chat template."""
