"""The dialect of iptables: plans written, listings read and compared, and the way from one to the other. Pure."""
