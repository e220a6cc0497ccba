"""The durable verbs, one subject per file."""
