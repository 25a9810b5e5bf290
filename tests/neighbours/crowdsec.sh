# CrowdSec's firewall bouncer: lists of both families, one of them empty
nft -f - <<'N'
table ip crowdsec {
  set crowdsec-blacklists { type ipv4_addr; flags timeout; elements = { 192.0.2.99 timeout 4h } }
  chain crowdsec-chain-input { type filter hook input priority filter - 10; policy accept; ip saddr @crowdsec-blacklists drop; }
}
table ip6 crowdsec6 {
  set crowdsec6-blacklists { type ipv6_addr; flags timeout; }
  chain crowdsec6-chain-input { type filter hook input priority filter - 10; policy accept; ip6 saddr @crowdsec6-blacklists drop; }
}
N
