"""`netinit kubectl`, which kubectl starts as `kubectl netinit`: `about` asks of some pods, `check` of all, `complete` helps typing."""
