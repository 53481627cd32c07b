"""The processes that look after local apps: one spawner per user and state folder, one keeper per
app.

Of the rest of transload nothing is imported but the rules of attempts, a single file: the spawner
runs this folder as a package of its own, in milliseconds.
"""
