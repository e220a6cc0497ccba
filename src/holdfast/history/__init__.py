"""The read model: what rows and records tell a person; nothing is written."""
