"""Small programs that built-in components run."""
