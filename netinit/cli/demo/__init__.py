"""`netinit demo`: `play` runs the demonstration in a pod of network namespaces, `command` prints it."""
