"""The iptables dialect, pure: write plans, read and compare listings, write the change between them."""
