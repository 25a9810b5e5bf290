# KubeVirt's masquerade binding: a machine behind the pod that takes port 8099
nft -f - <<'N'
table ip kubevirt-nat {
  chain prerouting { type nat hook prerouting priority -100; iifname "eth0" counter jump KUBEVIRT_PREINBOUND; }
  chain KUBEVIRT_PREINBOUND { tcp dport 8099 counter dnat to 10.0.2.2; }
  chain postrouting { type nat hook postrouting priority 100; ip saddr 10.0.2.2 counter masquerade; }
}
N
