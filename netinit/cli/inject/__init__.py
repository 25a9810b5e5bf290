"""The injection commands inject (kube-inject) and check-inject, with their flags and inputs."""
