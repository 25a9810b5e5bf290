"""The machine: programs, namespaces, netlink, what is installed and allowed. Impure, and knows nothing of rules."""
