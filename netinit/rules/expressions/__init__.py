"""Decode nf_tables expressions (linux/netfilter/nf_tables.h) into matches and targets.

A rule is a small program: expressions load values into registers, compare them, and act. `registers` tracks the origin of
each register's value, `conditions` converts comparisons to matches, `effects` converts actions to targets, and `reading`
walks a rule. Rules of nft, iptables-nft and any other program are decoded alike.

Anything not understood becomes an UnknownMatch or UnknownTarget in its place. A malformed rule is one unknown match
before an unknown target.
"""
