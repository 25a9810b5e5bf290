"""`netinit kubectl`, which kubectl runs as `kubectl netinit`: commands for some pods, `check` for all, and completion.

The cluster is accessed through the user's kubectl, without an HTTP library: `program` runs it, `objects` parses its
output, `destinations` resolves names.
"""
