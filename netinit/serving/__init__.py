"""The parts that netinit's servers share: event log, HTTP for health and metrics, listening sockets, resource limits.

May import: options, base. Knows nothing of the individual servers.
"""
