"""Interception from the node: a CNI plugin, and the agent that programs pods from outside as the runtime makes them.

The plugin (netinit/node/plugin.c) hands a request over to the agent, which is two processes. The one that was started is small,
has all rights and speaks to nobody but the other: it makes children that enter pods (`programmer`). The other has given
up every capability: it answers the plugin (`door`, `agent`), watches the API, serves health and metrics, and keeps the
installation (`installer`). May import: pods, kube, serving, inject, and what these stand on.
"""
