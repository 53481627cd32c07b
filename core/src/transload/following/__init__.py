"""Following apps: their logs, line by line, on the contract of a scheduler."""

from __future__ import annotations

from transload.following.lines import LineFilter, LogReader, last_lines, last_words, log_lines, times

__all__ = ["LineFilter", "LogReader", "last_lines", "last_words", "log_lines", "times"]
