"""Simulates all packets at once: packet sets traverse the rules, which split them. Pure.

`diagram` stores sets of points as interval decision diagrams; `space` maps packets to points; `regions` are packet sets
with boxes, sizes and members. `condition` is the state that the packets of a set share (marks, translated addresses),
`match_sets` evaluates matches, `chain_walk` traverses chains and `hook_walk` the hooks. `partition` is the result:
disjoint parts that together cover all packets.

The semantics are those of `netinit.simulate.engine`; tests compare both on members of every part.
"""
