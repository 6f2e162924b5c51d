"""Metrics declared once, request logs."""
