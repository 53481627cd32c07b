"""The components that transload brings: `utils` and `dist`."""
