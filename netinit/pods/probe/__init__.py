"""Send real packets through a pod's rules and compare their path with the plan.

Each probe is a connection's first packet, from a user in the pod or a temporary peer. Its path is read from connection
tracking: no port is occupied, no program receives a connection, and the proxy may run. Packets that would leave the pod
stop at the first router.
"""
