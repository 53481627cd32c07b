"""What an *application* may import: nothing here needs more than the standard library and fsspec."""
