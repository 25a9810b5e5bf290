# wg-quick with a full tunnel, without the device: its firewall rules
nft -f - <<'N'
table ip wg-quick-wg0 {
  chain preraw { type filter hook prerouting priority -300; iifname != "wg0" ip daddr 10.9.0.2 fib saddr type != local drop; }
  chain premangle { type filter hook prerouting priority -150; meta l4proto udp meta mark set ct mark; }
  chain postmangle { type filter hook postrouting priority -150; meta l4proto udp meta mark 0xca6c ct mark set meta mark; }
}
N
