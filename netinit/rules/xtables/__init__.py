"""The blobs of iptables' extensions (linux/netfilter/xt_*.h), decoded into matches and targets.

The older interface holds them in its tables, nf_tables in the expressions `match` and `target` that iptables-nft writes.
Both are the kernel's structs in the machine's byte order; addresses and ports are in network byte order where the struct says so.

A struct that is shorter than its extension's, or has bits that are not understood, becomes UnknownMatch or UnknownTarget.
"""
