"""Other meshes' command lines and files as our options: each peer's flags are a table, read by our own reader. Pure.

`convert` is the way in; `declare` says how a peer's flag is declared; the other files are a peer each.
"""
