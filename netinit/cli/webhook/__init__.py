"""Inject pods automatically, as an admission webhook of the cluster.

`manifests` and the Helm chart install the server, `serve`. `lint` checks an installation, and `compare` shows what would
change instead of another injector.
"""
