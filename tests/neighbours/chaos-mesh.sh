# Chaos Mesh, NetworkChaos of a pod: partition from a set of addresses, and a set of sets
ipset create net_0 hash:net; ipset add net_0 198.51.100.0/24
ipset create set_0 list:set; ipset add set_0 net_0
$IPTABLES -N CHAOS-INPUT; $IPTABLES -N CHAOS-OUTPUT
$IPTABLES -A INPUT -j CHAOS-INPUT; $IPTABLES -A OUTPUT -j CHAOS-OUTPUT
$IPTABLES -A CHAOS-INPUT -m set --match-set set_0 src -j DROP
$IPTABLES -A CHAOS-OUTPUT -m set --match-set net_0 dst -j DROP
