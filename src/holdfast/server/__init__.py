"""HTTP API and console."""
