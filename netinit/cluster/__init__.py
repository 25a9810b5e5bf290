"""Pods of a cluster, through the user's own kubectl: which they are, what names mean there, and who reads their rules.

`kubectl` starts the program; `objects` reads what it prints, pure; `destinations` turns names into addresses; `sources` ask
netinit in the node agent, in an ephemeral container or here; `itself` starts netinit. Imports the kernel and what is below.
"""
