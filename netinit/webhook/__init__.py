"""The admission webhook: an HTTPS server that runs `netinit.inject` for the API server.

The controller keeps configuration, certificate and namespace annotations in `ServingState`, from files or cluster
objects. The application answers small reviews in the event loop and expensive ones in a child process.

Pure: review, bounds, settings, configuration, renewal, chart, values. May import: inject, kube, options, base, serving.
"""
