"""The admission server that injects pods as the API server asks: a thin shell around `netinit.inject`.

Theory of operation. One supervisor, a keeper and some workers, forked from it. The supervisor does nothing but keep the
others alive and hand on signals. The keeper reads the configuration (files or ConfigMaps), tries it on a canary pod, keeps
the certificate, and puts what is good on the board, a folder of which each file is replaced whole; it also answers for
health and metrics. The workers share one listening socket. They serve reviews with what the board says, and swap it
between two reviews. Whoever dies is made again; the others go on with what is on the board.

Pure: review, advice, settings, configuration, renewal, chart, values. May import: inject, kube, kernel, options, base.
"""
