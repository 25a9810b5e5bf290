"""Ask about pods of a cluster, with your kubectl and your permissions, as `kubectl netinit` does.

The live rules are read through the node agent if it runs, else by an ephemeral container; without either, the answer is that
of the pod's manifest. Each answer names its source.
"""
