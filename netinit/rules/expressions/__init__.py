"""Decode and encode nf_tables expressions (linux/netfilter/nf_tables.h).

Expressions load values into registers, compare them, and act: `rule_reader` follows them through a rule, with the tables of
`rules.decoding`. What is not understood becomes UnknownMatch or UnknownTarget.
"""
