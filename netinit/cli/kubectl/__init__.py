"""`netinit kubectl`, which kubectl starts as `kubectl netinit`: `about` asks of some pods, `check` of all, `complete` helps typing.

A cluster is asked by way of the user's own kubectl, with no HTTP library: `program` starts it, `objects` reads what it
prints, `destinations` turns names into addresses.
"""
