"""The tracker backends that core brings."""
