"""Runs in one SQLite file, for one machine."""
