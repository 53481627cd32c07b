"""The keeper of a job, a process beside it on engines that have no controller of their own.

It must start within milliseconds. So this room keeps to the standard library, and to what of
transload does so too.
"""
