# OVN-Kubernetes on a node: services of the host, none of which the pod calls
$IPTABLES -t nat -N OVN-KUBE-NODEPORT; $IPTABLES -t nat -N OVN-KUBE-EXTERNALIP; $IPTABLES -t nat -N OVN-KUBE-ITP
$IPTABLES -t nat -A PREROUTING -j OVN-KUBE-NODEPORT; $IPTABLES -t nat -A PREROUTING -j OVN-KUBE-EXTERNALIP
$IPTABLES -t nat -A OUTPUT -j OVN-KUBE-EXTERNALIP; $IPTABLES -t nat -A OUTPUT -j OVN-KUBE-NODEPORT; $IPTABLES -t nat -A OUTPUT -j OVN-KUBE-ITP
$IPTABLES -t nat -A OVN-KUBE-NODEPORT -p tcp -m addrtype --dst-type LOCAL -m tcp --dport 31098 -j DNAT --to-destination 10.96.4.7:80
