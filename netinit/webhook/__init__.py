"""The admission server that injects pods as the API server asks: a thin shell around `netinit.inject`.

Theory of operation. One process with one event loop; Kubernetes restarts, scales and probes it. The controller keeps three
values current in `ServingState`, each replaced whole: the configuration (from files or ConfigMaps, tried on a canary pod first), the
certificate (from files or a Secret) and the namespaces' annotations. The application answers reviews with the values that it
finds there: light ones in the event loop, heavy ones in one child process beside it. Both ports answer from the start; `/readyz` says
when reviews can be answered.

Pure: review, bounds, advice, settings, configuration, renewal, chart, values. May import: inject, kube, options, base, serving.
"""
