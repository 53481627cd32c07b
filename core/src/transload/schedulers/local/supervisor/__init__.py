"""The processes that look after local jobs: one fork server per user and state folder, one
supervisor per job.

Of the rest of transload nothing is imported but the rules of attempts, a single file: the fork
server runs this folder as a package of its own, in milliseconds.
"""
