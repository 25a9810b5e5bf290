"""`netinit demo`: `play` makes a pod in the laboratory and yields what happens, `command` shows it."""
