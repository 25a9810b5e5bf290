# ufw: the chains of its defaults, with two allowed ports
for C in before-input after-input user-input skip-to-policy-input not-local; do $IPTABLES -N ufw-$C; done
$IPTABLES -A INPUT -j ufw-before-input; $IPTABLES -A INPUT -j ufw-after-input
$IPTABLES -A ufw-before-input -i lo -j ACCEPT
$IPTABLES -A ufw-before-input -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
$IPTABLES -A ufw-before-input -m conntrack --ctstate INVALID -j DROP
$IPTABLES -A ufw-before-input -j ufw-not-local
$IPTABLES -A ufw-not-local -m addrtype --dst-type LOCAL -j RETURN
$IPTABLES -A ufw-not-local -m limit --limit 3/min --limit-burst 10 -j DROP
$IPTABLES -A ufw-before-input -j ufw-user-input
$IPTABLES -A ufw-user-input -p tcp -m multiport --dports 80,443,8080,15006 -j ACCEPT
