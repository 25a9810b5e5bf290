# kube-proxy in IPVS mode: sets instead of chains for each service
ipset create KUBE-CLUSTER-IP hash:ip,port; ipset add KUBE-CLUSTER-IP 10.96.0.1,tcp:443; ipset create KUBE-LOOP-BACK hash:ip,port,ip; ipset create KUBE-LOAD-BALANCER hash:ip,port
$IPTABLES -t nat -N KUBE-SERVICES; $IPTABLES -t nat -N KUBE-MARK-MASQ; $IPTABLES -t nat -N KUBE-POSTROUTING
$IPTABLES -t nat -A PREROUTING -j KUBE-SERVICES; $IPTABLES -t nat -A OUTPUT -j KUBE-SERVICES; $IPTABLES -t nat -A POSTROUTING -j KUBE-POSTROUTING
$IPTABLES -t nat -A KUBE-MARK-MASQ -j MARK --or-mark 0x4000
$IPTABLES -t nat -A KUBE-SERVICES ! -s 10.244.0.0/16 -m set --match-set KUBE-CLUSTER-IP dst,dst -j KUBE-MARK-MASQ
$IPTABLES -t nat -A KUBE-SERVICES -m set --match-set KUBE-LOAD-BALANCER dst,dst -j KUBE-MARK-MASQ
$IPTABLES -t nat -A KUBE-POSTROUTING -m set --match-set KUBE-LOOP-BACK dst,dst,src -j MASQUERADE
$IPTABLES -t nat -A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
$IPTABLES -t nat -A KUBE-POSTROUTING -j MASQUERADE --random-fully
