"""Effects: what changes the world, and what becomes of one that was cut off."""
