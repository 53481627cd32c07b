"""One module per command, imported when the command is run; each holds it as ``command``."""
