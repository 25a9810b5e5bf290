"""Expressions of nf_tables (linux/netfilter/nf_tables.h), decoded into matches and targets.

A rule is a small program: expressions load what they look at into registers, compare it, and act. `registers` keeps what a
register holds as a description of where it came from, `conditions` turns a comparison into matches, `effects` what a rule does
into targets, and `reading` walks a rule. Any dialect is read alike: what nft writes, what iptables-nft writes, and what any
other program writes.

What is not understood becomes UnknownMatch or UnknownTarget in its place. A rule whose bytes do not add up is one unknown match
before an unknown target.
"""
