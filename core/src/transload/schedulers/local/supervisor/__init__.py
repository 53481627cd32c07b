"""The processes that look after local apps: one fork server per user and state folder, one
supervisor per app.

Of the rest of transload nothing is imported but the rules of attempts, a single file: the fork
server runs this folder as a package of its own, in milliseconds.
"""
