"""What every server of netinit shares: its log of events, HTTP for health and metrics, the port and the processors.

May import: options, base. Knows nothing of who serves what.
"""
