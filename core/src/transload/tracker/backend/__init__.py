"""The built-in trackers."""
