"""How many visual tokens an image costs, one file per model family; the registry picks."""
