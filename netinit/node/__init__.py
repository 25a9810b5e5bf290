"""Interception from the node: a CNI plugin, and the agent that programs pods from outside when the runtime creates them.

The plugin (netinit/node/plugin.c) passes each request to the agent, which is two processes. The first process is small,
keeps all capabilities and talks only to the second: it forks children that enter pods (`programmer`). The second has
dropped every capability: it answers the plugin (`unix_server`, `agent`), watches the API, serves health and metrics, and
maintains the installation (`installer`). May import: pods, kube, serving, inject, and what these import.
"""
