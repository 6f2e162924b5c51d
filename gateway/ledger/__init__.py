"""Where holdings live: who holds what, who waits, and the lease that gives it back."""
