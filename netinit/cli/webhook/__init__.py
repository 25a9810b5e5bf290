"""Commands for automatic injection: `netinit webhook serve`, probe, manifests, lint and compare."""
