"""Code shared by netinit's servers: event log, HTTP listener, connection limits, process resources.

May import: options, base.
"""
