"""The built-in components, `utils` and `dist`."""
