"""The structs of iptables' extensions (linux/netfilter/xt_*.h), in legacy tables and in nf_tables' expressions `match` and `target`.

They are in the machine's byte order, addresses and ports in network byte order. A struct that is too short, or has unknown
bits, becomes UnknownMatch or UnknownTarget.
"""
