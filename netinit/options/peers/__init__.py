"""Convert other meshes' command lines and files to our options: `convert`; a table of flags for each peer. Pure."""
