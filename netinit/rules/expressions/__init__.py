"""Decode and encode nf_tables expressions (linux/netfilter/nf_tables.h).

Expressions load values into registers, compare them, and act. `registers` tracks what each register holds, `conditions`
decodes comparisons, `effects` actions, `reading` whole rules. What is not understood becomes UnknownMatch or UnknownTarget.
"""
