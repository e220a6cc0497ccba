"""One execution of a run: its branches, its calls, its waits, and what carries them."""
