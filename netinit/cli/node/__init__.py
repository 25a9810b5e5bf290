"""The commands about interception from the node: `netinit node agent`, status and uninstall."""
