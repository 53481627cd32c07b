"""The small programs of the built-in components."""
