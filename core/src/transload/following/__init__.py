"""Following apps: their logs, line by line, on the contract of a scheduler."""
