"""Convert other meshes' command lines and files to our options; a table of flags for each peer. Pure.

`convert` is the entry point, `declare` defines how a peer's flag is declared, and the other modules are one peer each.
"""
