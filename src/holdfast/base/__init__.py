"""What everything stands on: time, ids, settings, crash points, the log, the operating system."""
