"""The processes that look after local jobs.

There is a fork server per user and state folder, and a supervisor per job.

The fork server runs this folder as a separate package, so that it starts within milliseconds. It
imports little of the rest of transload, such as the rules of retries.
"""
