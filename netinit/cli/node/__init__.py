"""Program pods from the node, by a CNI plugin: no pod needs NET_ADMIN.

`agent` is the DaemonSet's process, which also installs the plugin.
"""
