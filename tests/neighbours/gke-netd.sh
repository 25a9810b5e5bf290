# GKE: masquerading by ip-masq-agent, and netd's marks of connections
$IPTABLES -t nat -N IP-MASQ; $IPTABLES -t nat -A POSTROUTING -m addrtype ! --dst-type LOCAL -j IP-MASQ
$IPTABLES -t nat -A IP-MASQ -d 10.0.0.0/8 -j RETURN; $IPTABLES -t nat -A IP-MASQ -j MASQUERADE
$IPTABLES -t mangle -N GCP-PREROUTING; $IPTABLES -t mangle -A PREROUTING -j GCP-PREROUTING
$IPTABLES -t mangle -A GCP-PREROUTING -i eth0 -j CONNMARK --restore-mark
