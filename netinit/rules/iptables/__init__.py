"""The dialect of iptables: plans written, listings read and compared, and the transition from one to the other. Pure."""
