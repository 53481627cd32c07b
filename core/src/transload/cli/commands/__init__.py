"""The commands, one or a few that belong together in a module, imported when one of them is run."""
