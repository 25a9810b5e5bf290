# fail2ban with ipset: the list of sshd is empty, that of the web server has one address
ipset create f2b-sshd hash:ip timeout 600; ipset create f2b-nginx hash:ip timeout 600; ipset add f2b-nginx 192.0.2.99
$IPTABLES -I INPUT -p tcp -m multiport --dports 22 -m set --match-set f2b-sshd src -j REJECT --reject-with icmp-port-unreachable
$IPTABLES -I INPUT -p tcp -m multiport --dports 80,443 -m set --match-set f2b-nginx src -j REJECT --reject-with icmp-port-unreachable
