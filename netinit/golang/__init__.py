"""The template language of Go, and YAML and JSON as Go writes them: a library of its own that knows nothing of Istio or pods.

May import netinit.base alone. Pure.
"""
