"""`holdfast demo`: an agent that is killed three times and loses nothing, with the proof."""
