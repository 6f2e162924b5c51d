"""The HTTP side towards clients: door, routes, and the response that owns the lease."""
