"""All packets at once: the engine's walk over sets of packets, cut by the rules themselves. Pure.

`diagram` holds sets of points as interval decision diagrams, `space` says which packets the points are, `regions` are
such sets with their boxes, sizes and members. `condition` is what is true of all packets of a set on their path (marks,
translated addresses), `chosen` what a match chooses among them, `walk` how a set goes through chains, `journey` through
the kernel's hooks. `partition` is the result: parts that are disjoint and together everything.

The laws are those of `netinit.simulate.engine`, and its tests hold the two together on members of every part.
"""
