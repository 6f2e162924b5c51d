"""The pages of docs/reference, made from the code that they describe. `make docs` writes them; a test compares."""
