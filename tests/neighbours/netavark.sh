# podman's netavark: a published port behind the pod
nft -f - <<'N'
table inet netavark {
  chain INPUT { type filter hook input priority filter; policy accept; ip saddr 10.89.0.0/24 meta l4proto { tcp, udp } th dport 53 accept; }
  chain FORWARD { type filter hook forward priority filter; policy accept; ct state invalid drop; ip daddr 10.89.0.0/24 ct state established,related accept; }
  chain POSTROUTING { type nat hook postrouting priority srcnat; policy accept; ip saddr 10.89.0.0/24 ip daddr != 224.0.0.0/4 masquerade; }
  chain NETAVARK-HOSTPORT-DNAT { tcp dport 8099 dnat ip to 10.89.0.2:80; }
  chain PREROUTING { type nat hook prerouting priority dstnat + 1; policy accept; fib daddr type local jump NETAVARK-HOSTPORT-DNAT; }
}
N
