"""The processes that look after local apps: one spawner per user and state folder, one keeper per app.

Nothing here imports the rest of transload: the spawner runs this folder as a package of its own, in milliseconds.
"""
