"""What a snapshot of a network namespace says: its rules in force, its host, counters, and the node's own probes. Pure.

May import simulate, rules, options and base; asks no kernel.
"""
