"""The keeper of a local job, a process beside it.

It runs this folder as a separate package, so that it starts within milliseconds. It imports little
of the rest of transload, such as the rules of retries.
"""
