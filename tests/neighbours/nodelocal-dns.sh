# NodeLocal DNSCache: no tracking of the local address
for A in OUTPUT PREROUTING; do $IPTABLES -t raw -A $A -d 169.254.20.10/32 -p udp -m udp --dport 53 -j NOTRACK; $IPTABLES -t raw -A $A -d 169.254.20.10/32 -p tcp -m tcp --dport 53 -j NOTRACK; done
$IPTABLES -t raw -A OUTPUT -s 169.254.20.10/32 -p udp -m udp --sport 53 -j NOTRACK
$IPTABLES -A INPUT -d 169.254.20.10/32 -p udp -m udp --dport 53 -j ACCEPT
$IPTABLES -A OUTPUT -s 169.254.20.10/32 -p udp -m udp --sport 53 -j ACCEPT
