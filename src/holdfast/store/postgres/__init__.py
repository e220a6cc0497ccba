"""Runs in a PostgreSQL database, for workers on several machines."""
