"""The questions about a pod's traffic: explain, audit, diff, lint, verify, and which rules are meant. Pure.

Options, manifests, dumps, snapshots and records are handed in as values; `netinit.library` reads them. May import inject, live,
simulate, rules, options and base; knows neither the kernel nor command lines.
"""
