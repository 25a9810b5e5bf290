"""The admission webhook: a server around `netinit.inject` that injects pods on the API server's request.

Theory of operation. One process with one event loop; Kubernetes restarts, scales and probes it. The controller keeps
three values in `ServingState` current and replaces each as a whole: the configuration (from files or ConfigMaps, tested
on a canary pod first), the certificate (from files or a Secret) and the namespaces' annotations. The application
answers reviews with the current values: light reviews in the event loop, heavy ones in a child process. Both ports
accept connections from the start; `/readyz` reports when reviews can be answered.

Pure: review, bounds, advice, settings, configuration, renewal, chart, values. May import: inject, kube, options, base,
serving.
"""
