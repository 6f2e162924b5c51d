"""Dialects, sans-IO: bytes to values and back. Nothing here opens, waits or knows a framework."""
