"""Pictures by http(s) address: which addresses may be asked, how much of an answer is taken, what is kept of it."""
