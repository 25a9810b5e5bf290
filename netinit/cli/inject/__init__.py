"""The commands about injection: inject (kube-inject) and check-inject, and how they read their flags and inputs."""
