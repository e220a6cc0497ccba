"""Adapters for agent frameworks, one file each; import the one you need."""
