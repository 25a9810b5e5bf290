"""Look at an installation from outside: preflight before it is made, lint of its objects, comparison with another injector.

The shipped chart's values are here too. May import inject, kube, serving, and what these import; nothing of it runs in the servers.
"""
