"""Which pods are injected, and what their manifests say: annotations, containers, options, findings. Pure.

May import golang, options and base; what is added to a pod is `inject.adding`'s, which stands on this.
"""
