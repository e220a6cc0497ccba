"""What a caller holds: `Run`, `Question`, `InDoubt`."""
