"""The run's log: writing it, answering from it, and proving that it is whole."""
