"""Finds traffic that bypasses the proxy, its cause and its remedy; proves or refutes assertions about traffic. Pure.

`kinds` lists the kinds of traffic, most dangerous first; `words` describes packet sets; `subject` holds the audited
rules and `bypasses` classifies their packets. `grammar` parses assertions and `proof` checks them against all
packets.
"""
