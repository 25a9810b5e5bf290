"""The command line: the lean path (start), click's group and one file a command."""
