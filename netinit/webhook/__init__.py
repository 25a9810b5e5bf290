"""The admission webhook: an HTTPS server that runs `netinit.inject` for the API server.

The controller keeps configuration, certificate and namespace annotations in `ServingState`, from files or cluster
objects. The server answers small reviews in the event loop and expensive ones in a child process.

Pure: certificates, configuration, review, settings. May import: inject, kube,
serving, and what these import.
"""
