"""Runs started by the calendar."""
