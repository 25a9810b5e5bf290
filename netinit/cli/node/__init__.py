"""Commands for interception from the node: `netinit node agent`, status and uninstall."""
