"""The admission webhook: an HTTPS server that runs `netinit.inject` for the API server.

One process with one event loop. The controller keeps the configuration (tested on a canary pod), the certificate and
the namespaces' annotations in `ServingState`, from files or cluster objects. The application answers small reviews in
the event loop and expensive ones in a child process. `/readyz` succeeds once reviews can be answered.

Pure: review, bounds, advice, settings, configuration, renewal, chart, values. May import: inject, kube, options, base,
serving.
"""
