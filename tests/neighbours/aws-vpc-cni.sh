# AWS VPC CNI: source NAT, and marks of connections that came in by another device
$IPTABLES -t nat -N AWS-SNAT-CHAIN-0; $IPTABLES -t nat -N AWS-CONNMARK-CHAIN-0
$IPTABLES -t nat -A POSTROUTING -m comment --comment "AWS SNAT CHAIN" -j AWS-SNAT-CHAIN-0
$IPTABLES -t nat -A AWS-SNAT-CHAIN-0 -d 192.168.0.0/16 -j RETURN
$IPTABLES -t nat -A AWS-SNAT-CHAIN-0 ! -o vlan+ -m addrtype ! --dst-type LOCAL -j SNAT --to-source 10.77.0.2
$IPTABLES -t mangle -A PREROUTING -i eth0 -m addrtype --dst-type LOCAL --limit-iface-in -j CONNMARK --set-xmark 0x80/0x80
$IPTABLES -t mangle -A PREROUTING -i eni+ -j CONNMARK --restore-mark --nfmask 0x80 --ctmask 0x80
