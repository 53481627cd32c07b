"""The folder in which a job is kept: its record, states, logs, results and checkpoints."""
