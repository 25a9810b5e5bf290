"""The command line: a fast path without click (`start`), click's group, and one module per command."""
