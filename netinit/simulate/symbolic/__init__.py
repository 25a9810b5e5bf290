"""Simulates all packets at once: packet sets traverse the rules, which split them. Pure.

`diagram` stores sets of points, `space` maps packets to points, and `regions` are packet sets. Packets of a set share a
`condition`; `match_sets` evaluates matches, `chain_walk` traverses chains, `hook_walk` hooks. The result is a partition
of all packets (`partition`). Tests compare members of every part with `netinit.simulate.engine`.
"""
