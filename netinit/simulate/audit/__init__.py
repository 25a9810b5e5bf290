"""What of all traffic does not go through the proxy, why, and what closes it; and sentences about traffic, proved or refuted. Pure.

`kinds` names what becomes of packets, in the order of danger; `words` spells sets of packets; `subject` is what is looked
at, `bypasses` sorts its parts. `grammar` reads assertions, `proof` holds them against all packets.
"""
