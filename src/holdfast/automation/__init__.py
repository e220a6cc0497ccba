"""What starts runs by itself: schedules, triggers, the outbox of a user's transaction."""
