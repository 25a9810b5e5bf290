"""The commands about automatic injection: `netinit webhook serve`, probe, manifests and lint."""
