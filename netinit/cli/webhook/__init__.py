"""The commands about automatic injection: `netinit webhook serve`, probe, manifests, lint and compare."""
