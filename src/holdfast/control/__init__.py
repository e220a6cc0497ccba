"""What people do to runs from outside, and the mail that does it."""
