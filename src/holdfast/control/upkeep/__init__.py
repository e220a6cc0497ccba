"""What is done to many runs for the store's sake: pruning, and moving them to another one."""
