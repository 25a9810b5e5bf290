"""Snapshots as data: what the kernel held once, written down so that decoding is tested without privileges.

    python tests/recorded.py [ROOT ...]    records all rule sets again; root, iptables, nft and ipset are needed

Bytes are hexadecimal. A file names the programs that made its rules. Rules of products are in unit/rules/products, in the words of
iptables-restore and nft; each version of a program has a file of what it made of them. ROOT is a folder with the programs of another
version and their libraries, as `dpkg-deb -x` unpacks Debian's packages; this machine's own are recorded in any case.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

from netinit.base import snapshot as records
from netinit.base.records import Record
from netinit.base.snapshot import Snapshot

FOLDER = Path(__file__).parent / "unit" / "rules" / "recorded"
NAMES = tuple(path.stem for path in sorted(FOLDER.glob("*.json")))
BYTES = "hex:"
PRODUCTS = FOLDER.parent / "products"
RECORDINGS = tuple(path.name.removesuffix(".json.gz") for path in sorted(FOLDER.glob("*.json.gz")))  # program and version
ADDRESS_SETS = ("cali40masq-ipam-pools", "cali40all-ipam-pools", "cali40all-hosts-net", "cilium_node_set_v4")
FORMS = "every known form"

# Rules of others, in every form that the decoders know beside those of the layouts.
FOREIGN = {
    "nat": (
        "-A PREROUTING -p tcp -m multiport --dports 80,443,8000:8080 -j DNAT --to-destination 10.1.2.3:8443",
        "-A PREROUTING -p udp -m udp ! --sport 1:1023 -j DNAT --to-destination 10.1.2.3",
        "-A OUTPUT -o eth+ -p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN -j RETURN",
        "-A OUTPUT ! -o lo -m addrtype --dst-type LOCAL -j ACCEPT",
        "-A OUTPUT -p tcp -m owner ! --uid-owner 1000-2000 --gid-owner 5 -j REDIRECT --to-ports 99",
        "-A PREROUTING -d 10.5.0.0/16 -j NETMAP --to 10.6.0.0/16",
        "-A POSTROUTING -s 10.0.0.0/9 ! -d 10.128.0.0/9 -j MASQUERADE",
    ),
    "mangle": (
        "-A PREROUTING -i veth1 -m mark ! --mark 0x1/0xff -j MARK --set-xmark 0x7/0xf0",
        "-A PREROUTING -m connmark --mark 0x5 -j CONNMARK --save-mark --nfmask 0xffffffff --ctmask 0xffffffff",
        "-A OUTPUT -m conntrack --ctstate RELATED,ESTABLISHED -j CONNMARK --set-xmark 0x2/0xffffffff",
        "-A PREROUTING -p udp -m socket -j TPROXY --on-port 7000 --on-ip 0.0.0.0 --tproxy-mark 0x9/0xffffffff",
    ),
    "raw": ("-A OUTPUT -p udp -m udp --dport 53 -j CT --zone 3", "-A OUTPUT -p udp -m udp --dport 54 -j CT --zone-orig 3",
        "-A PREROUTING -p udp -m udp --dport 55 -j CT --zone-reply 4", "-A PREROUTING -p tcp -j CT --notrack"),
    "filter": (
        "-A INPUT -m conntrack ! --ctstate INVALID,UNTRACKED -j ACCEPT",
        "-A INPUT -m state --state NEW -m limit --limit 5/sec --limit-burst 9 -j NFLOG --nflog-prefix new --nflog-group 3",
        "-A INPUT -p tcp -j REJECT --reject-with tcp-reset",
        '-A INPUT -p icmp -m comment --comment "a comment of two words" -j DROP',
        "-A OUTPUT -j REJECT --reject-with icmp-port-unreachable",
        '-A OUTPUT -j LOG --log-prefix "gone: "',
        "-A OUTPUT -m conntrack --ctdir REPLY -j ACCEPT",
        "-A INPUT -m iprange ! --src-range 192.0.2.1-192.0.2.9 -j DROP",
        "-A INPUT -p tcp -m multiport --ports 53,8000:8080 -j DROP",
        "-A INPUT -p tcp -m conntrack --ctorigdst 10.1.2.0/24 -j ACCEPT",
        "-A INPUT -p tcp -m conntrack ! --ctorigdstport 80 -j ACCEPT",
        "-A INPUT -m ttl --ttl-eq 1 -j DROP",
        "-A FORWARD -j NFQUEUE --queue-num 3",
        "-A FORWARD -g ELSEWHERE",
    ),
}

# Tables of others in nft's own words: sets, intervals, concatenations, verdict maps, several fields compared at once.
NATIVE = """
table inet filter {
  set blocked { type ipv4_addr; flags interval; elements = { 10.0.0.0/8, 192.0.2.1-192.0.2.9 } }
  set pairs { type ipv4_addr . inet_service; elements = { 10.1.1.1 . 80, 10.1.1.2 . 443 } }
  chain helpers { tcp dport { 22, 80, 8000-8100 } accept; }
  chain input {
    type filter hook input priority filter; policy drop;
    ct state vmap { established : accept, related : accept, invalid : drop }
    iif lo accept
    iifname "eth*" jump helpers
    meta l4proto { tcp, udp } th dport 53 accept
    ip saddr @blocked drop
    ip saddr . tcp dport @pairs accept
    ip6 saddr fe80::/10 icmpv6 type echo-request limit rate 5/second accept
    tcp dport vmap { 1-1023 : drop, 5000 : goto helpers }
    tcp flags & (fin | syn | rst | ack) == syn counter reject with tcp reset
    meta mark & 0xff == 0x7 meta mark set meta mark & 0xffffff00 | 0x9 accept
    ip saddr 1.2.3.4 ip daddr 5.6.7.8 tcp sport 9 tcp dport 10 log prefix "odd" drop
    meta skuid 1000-2000 ct mark set 0x5
    meta nfproto ipv6 reject
    comment "the end" counter
  }
}
table ip nat {
  chain dstnat {
    type nat hook prerouting priority -90;
    ip daddr 10.96.0.1 tcp dport 443 dnat to 10.1.1.1:6443
    ip daddr 10.96.0.0/12 dnat to 10.1.1.9
    tcp dport 8080 redirect to :80
    fib daddr type local tcp dport 30000-32767 counter
    masquerade
  }
}
""".replace('comment "the end" counter', 'counter comment "the end"').replace("    masquerade\n", "")


def to_data(value: object) -> object:
    """A record as JSON has it."""
    if isinstance(value, Record):
        return {"is": type(value).__name__} | {name: to_data(one) for name, one in value.__getstate__().items()}
    if isinstance(value, bytes):
        return BYTES + value.hex()
    return [to_data(one) for one in value] if isinstance(value, tuple) else value


def from_data(value: object) -> object:
    """A record out of JSON."""
    if isinstance(value, dict):
        fields = {name: from_data(one) for name, one in value.items() if name != "is"}
        return getattr(records, value["is"])(**fields)
    if isinstance(value, list):
        return tuple(from_data(one) for one in value)
    return bytes.fromhex(value.removeprefix(BYTES)) if isinstance(value, str) and value.startswith(BYTES) else value


def read(name: str) -> Snapshot:
    """A recorded snapshot."""
    found = from_data(json.loads((FOLDER / f"{name}.json").read_text())["snapshot"])
    assert isinstance(found, Snapshot)
    return found


def read_products(recording: str) -> dict[str, Snapshot]:
    """What one version of a program made of each product's rules."""
    held = json.loads(gzip.decompress((FOLDER / f"{recording}.json.gz").read_bytes()))
    return {product: from_data(snapshot) for product, snapshot in held.items()}


def record_products(root: Path) -> None:
    """Records what a root's programs make of the products' rules, and of every known form."""
    from laboratory import NetworkNamespace
    from netinit.kernel.snapshot.reader import read_snapshot

    inside = [] if root == Path("/") else ["chroot", str(root)]
    texts = {
        suffix: {path.stem: path.read_text() for path in sorted(PRODUCTS.glob(f"*.{suffix}"))} for suffix in ("rules", "nft")
    }
    texts["rules"][FORMS], texts["nft"][FORMS] = forms(), NATIVE
    for name, suffix in (("iptables-nft", "rules"), ("iptables-legacy", "rules"), ("nft", "nft")):
        made = {}
        for product, text in texts[suffix].items():
            with NetworkNamespace("record") as namespace:
                given = root / "tmp" / "netinit-rules"
                given.write_text(text)
                for one in ADDRESS_SETS if "--match-set" in text else ():
                    namespace.run(["ipset", "create", one, "hash:net"], check=True)
                command = ["nft", "-f"] if name == "nft" else [f"{name}-restore"]
                done = namespace.run([*inside, f"/usr/sbin/{command[0]}", *command[1:], "/tmp/netinit-rules"])
                given.unlink()
                if done.returncode:
                    print(f"{root} {name} {product}: {done.stderr.strip()[:200]}")
                    continue
                found = namespace.call(read_snapshot)
                version = namespace.run([*inside, f"/usr/sbin/{command[0]}", "--version"], check=True).stdout.split()[1].strip("v")
            made[product] = to_data(
                Snapshot(
                    generation=1, tables=found.tables, chains=found.chains, rules=found.rules, sets=found.sets,
                    objects=found.objects, legacy=found.legacy, links=found.links,
                )
            )  # fmt: skip
        packed = gzip.compress(json.dumps(made, separators=(",", ":")).encode(), mtime=0)
        others = [path for path in FOLDER.glob(f"{name}-*.json.gz") if path.name != f"{name}-{version}.json.gz"]
        if len(made) < len(texts[suffix]) or any(path.read_bytes() == packed for path in others):
            print(f"{name} {version}: not kept, it does not take all rules, or makes what another version made")
            continue
        (FOLDER / f"{name}-{version}.json.gz").write_bytes(packed)
        print(f"{name} {version}: {len(made)} rule sets, {len(packed)} bytes")


def forms() -> str:
    """The rules of others, for iptables-restore."""
    return "".join(["\n".join([f"*{table}", ":ELSEWHERE - [0:0]", *rules, "COMMIT", ""]) for table, rules in FOREIGN.items()])


def record() -> None:
    """Makes the rule sets again and writes down what the kernel holds then: rules, sets and devices."""
    from laboratory import NetworkNamespace
    from netinit.kernel.snapshot.reader import read_snapshot

    text = forms()
    makers = {
        "iptables-nft": (["iptables-nft-restore"], text, ["iptables-nft", "--version"]),
        "iptables-legacy": (["iptables-legacy-restore"], text, ["iptables-legacy", "--version"]),
        "nft": (["nft", "-f", "-"], NATIVE, ["nft", "--version"]),
    }
    FOLDER.mkdir(exist_ok=True)
    for name, (command, rules, version) in makers.items():
        with NetworkNamespace("record") as namespace:
            namespace.run(command, stdin=rules, check=True)
            found = namespace.call(read_snapshot)
            made_by = namespace.run(version, check=True).stdout.strip()
        kept = Snapshot(
            generation=1, tables=found.tables, chains=found.chains, rules=found.rules, sets=found.sets, legacy=found.legacy, links=found.links
        )
        (FOLDER / f"{name}.json").write_text(json.dumps({"made by": made_by, "snapshot": to_data(kept)}, indent=1) + "\n")


if __name__ == "__main__":
    record()
    for folder in ["/", *sys.argv[1:]]:
        record_products(Path(folder))
