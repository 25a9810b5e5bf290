"""`netinit explain` in a pod whose rules somebody has damaged: it says what the kernel does now, and because of which rule."""

from __future__ import annotations

import json
import socket

import pytest

from lab_probes import Probe
from laboratory import NetworkNamespace, Pod, start_servers
from netinit.lab import APP_ID, PROXY_ID
from netinit.options import Options
from programming import SIDECAR, VARIANTS, apply_in, arrivals, needs, run_tool
from sweeps import choose, crossed, fixtures_in_turn

OUTSIDE = "203.0.113.7"
DAMAGES = {
    "nothing": ("", "captured", "all outbound TCP is captured; no exclusion matches"),
    "the last rule deleted": ("-t nat -D ISTIO_OUTPUT -j ISTIO_REDIRECT", "direct", "no rule captures it"),
    "the jump deleted": ("-t nat -D OUTPUT -j ISTIO_OUTPUT", "direct", "no IPv4 rule applies to it"),
    "a rule moved": ("-t nat -I ISTIO_OUTPUT 1 -j ISTIO_REDIRECT", "captured", "all outbound TCP is captured; no exclusion matches"),
    "a rule added in front": ("-t nat -I OUTPUT 1 -p tcp --dport 80 -j ACCEPT", "direct", "`-p tcp -m tcp --dport 80 -j ACCEPT`"),
    "policy DROP": ("-P OUTPUT DROP", "dropped", "the policy of filter OUTPUT is DROP"),
    "a foreign DNAT before ours": (
        f"-t nat -I OUTPUT 1 -p tcp -d {OUTSIDE} -j DNAT --to-destination 198.51.100.7:443",
        "direct",
        "a rule that is not netinit's sends it to 198.51.100.7:443 instead",
    ),
    "whoever has a socket is let go": ("-t nat -I OUTPUT 1 -p tcp -m owner --socket-exists -j ACCEPT", "direct", "-m owner --socket-exists -j ACCEPT"),
    "whoever has none is let go": ("-t nat -I OUTPUT 1 -p tcp -m owner ! --socket-exists -j ACCEPT", "captured", "all outbound TCP is captured; no exclusion matches"),
    "a range of addresses is let go": (
        "-t nat -I OUTPUT 1 -p tcp -m iprange --dst-range 203.0.113.6-203.0.113.7 -j ACCEPT", "direct", "--dst-range 203.0.113.6-203.0.113.7",
    ),
    "another range of addresses is let go": (
        "-t nat -I OUTPUT 1 -p tcp -m iprange ! --src-range 10.76.0.0-10.77.0.2 -j ACCEPT", "captured", "all outbound TCP is captured; no exclusion matches",
    ),
    "either port is let go": ("-t nat -I OUTPUT 1 -p tcp -m multiport --ports 7,70:80 -j ACCEPT", "direct", "-m multiport --ports 7,70:80"),
    "other ports are let go": (
        "-t nat -I OUTPUT 1 -p tcp -m multiport ! --ports 7,70:80 -j ACCEPT", "captured", "all outbound TCP is captured; no exclusion matches",
    ),
    "a match that cannot be known": (
        "-t nat -I OUTPUT 1 -p tcp -m statistic --mode random --probability 0.5 -j ACCEPT",
        "unknown",
        "-p tcp -m statistic",
    ),
}  # fmt: skip
REFUSED = ("the last rule deleted", "the jump deleted", "a rule added in front", "whoever has a socket is let go", "a range of addresses is let go", "either port is let go")  # unless the rules are Istio's to the letter


pytest_generate_tests = fixtures_in_turn(variant=VARIANTS)


@pytest.fixture
def variant(request) -> str:
    needs(request.param)
    return request.param


def damage(pod: NetworkNamespace, variant: str, words: str) -> None:
    if words:
        pod.run([variant, "-w", *words.split()], check=True)


def explain(pod: Pod, *words: str) -> dict:
    done = run_tool(pod, "explain", "--live", "--json", *words, *SIDECAR)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("exact", [False, True], ids=["", "istio-exact"])
def test_what_explain_says_of_a_damaged_pod_is_what_happens_there(pod, variant, exact):
    start_servers(pod)
    options = Options.from_argv([*SIDECAR, "--backend", variant, "--ipv6", "on"]).replace(istio_exact=exact)
    for name, (words, verdict, reason) in choose(list(DAMAGES.items())[exact::3], list(DAMAGES.items())):
        if name in REFUSED and not exact:
            verdict, reason = "dropped", "not redirected by nat, so rejected"  # noqa: PLW2901
        apply_in(pod, options.replace(reconcile=True))
        damage(pod, variant, words)
        told = explain(pod, "--to", f"{OUTSIDE}:80", "--uid", str(APP_ID), *(["--istio-exact"] if exact else []))
        assert (told["verdict"], told["source"]) == (verdict, variant), (name, told["sentence"])
        assert reason in told["sentence"], name
        arrival = pod.connect(OUTSIDE, 80, uid=APP_ID, gid=APP_ID, timeout=0.4)
        answered = {
            "captured": ("proxy", 15001),
            "direct": ("outside", 443 if "DNAT" in words else 80),
            "dropped": (None, None),
        }
        if verdict != "unknown":
            assert (arrival.server, arrival.port) == answered[verdict], (name, str(arrival))
        for undo in (
            "-P OUTPUT ACCEPT",
            f"-t nat {words.split(' ', 2)[-1].replace('-I OUTPUT 1', '-D OUTPUT')}" if "-I OUTPUT 1" in words else "",
        ):
            damage(pod, variant, undo)


def test_live_counters_stand_beside_the_rules(pod, variant):
    start_servers(pod)
    apply_in(pod, Options.from_argv([*SIDECAR, "--backend", variant, "--ipv6", "on"]))
    for _ in range(3):
        assert pod.connect(OUTSIDE, 80, uid=APP_ID, gid=APP_ID).server == "proxy"
    path = [step for step in explain(pod, "--to", f"{OUTSIDE}:80", "--uid", str(APP_ID))["path"] if step["rule"]]
    assert [step["packets"] for step in path] == [3, 3, 3]
    assert [step["chain"] for step in path] == ["OUTPUT", "ISTIO_OUTPUT", "ISTIO_REDIRECT"]
    drawn = run_tool(pod, "draw", "--live", "--to", f"{OUTSIDE}:80", *SIDECAR)
    assert drawn.stdout.count("(3 packets)") == 3, drawn.stdout


def test_a_pod_is_explained_from_outside_by_the_pid_of_its_process(pod, variant):
    start_servers(pod)
    apply_in(pod, Options.from_argv([*SIDECAR, "--backend", variant, "--ipv6", "on"]))
    words = ("explain", "--json", "--pid", str(pod.pid), "--from", "10.77.0.1", "--to-port", "8080", *SIDECAR)
    told = json.loads(run_tool(pod.client, *words).stdout)
    assert (told["verdict"], told["redirect_port"], told["original_destination"]) == (
        "captured",
        15006,
        "10.77.0.2:8080",
    )
    told = json.loads(
        run_tool(
            pod.client,
            "explain",
            "--json",
            "--pid",
            str(pod.pid),
            "--to",
            "10.77.0.2:80",
            "--uid",
            str(PROXY_ID),
            *SIDECAR,
        ).stdout
    )
    assert told["redirect_port"] == 15006


def test_rules_in_both_variants_are_told_as_a_doubt(pod):
    for name in VARIANTS:
        needs(name)
    start_servers(pod)
    apply_in(pod, Options.from_argv([*SIDECAR, "--backend", "iptables-nft", "--ipv6", "on"]))
    damage(pod, "iptables-legacy", "-t nat -A OUTPUT -p tcp -j REDIRECT --to-ports 9")
    told = explain(pod, "--to", f"{OUTSIDE}:80")
    assert told["verdict"] == "unknown"
    assert "iptables-nft and iptables-legacy" in told["sentence"]


@pytest.mark.parametrize(("ours", "theirs"), choose([("iptables-nft", "iptables-legacy"), ("nftables", "iptables-nft")], [(a, b) for a in (*VARIANTS, "nftables") for b in VARIANTS if a != b]))
def test_a_policy_alone_in_another_place_drops_and_explain_audit_and_diff_say_so(pod, ours, theirs):
    for name in (ours, theirs):
        needs(name)
    start_servers(pod)
    apply_in(pod, Options.from_argv([*SIDECAR, "--backend", ours, "--ipv6", "on"]))
    assert pod.connect(OUTSIDE, 80, uid=APP_ID, gid=APP_ID).server == "proxy"
    assert explain(pod, "--to", f"{OUTSIDE}:80")["verdict"] == "captured"
    damage(pod, theirs, "-P OUTPUT DROP")
    told = explain(pod, "--to", f"{OUTSIDE}:80")
    assert pod.connect(OUTSIDE, 80, uid=APP_ID, gid=APP_ID, timeout=0.4).outcome == "timeout"
    assert (told["verdict"], told["source"]) == ("dropped", theirs)
    assert f"the policy of {theirs}'s filter OUTPUT is DROP" in told["sentence"]
    audited = json.loads(run_tool(pod, "audit", "--live", "--full", "--json").stdout)
    dropped = [row for row in audited["pods"][0]["traffic"] if f"the policy of {theirs}'s filter OUTPUT is DROP" in str(row)]
    assert dropped, audited
    changed = run_tool(pod, "diff", "--live", *SIDECAR)
    assert f"the policy of {theirs}'s filter OUTPUT is DROP" in changed.stdout, changed


def test_a_pod_without_rules_sends_everything_as_it_is(pod):
    told = explain(pod, "--to", f"{OUTSIDE}:80")
    assert told["verdict"] == "direct"
    assert "there are no rules at all in this namespace" in told["warnings"]


def test_native_nft_rules_are_explained_as_they_are(pod):
    options = ("--native-nftables", "--ipv6", "on", "--istio-exact")
    apply_in(pod, Options.from_argv([*SIDECAR, *options]))
    told = explain(pod, "--to", f"{OUTSIDE}:80", *options)
    assert (told["verdict"], told["source"]) == ("captured", "nftables")
    pod.run(["nft", "insert rule inet istio-proxy-nat istio-output tcp dport 80 counter accept"], check=True)
    told = explain(pod, "--to", f"{OUTSIDE}:80", *options)
    assert told["verdict"] == "direct"
    assert "a rule in netinit's chain that no option makes: `tcp dport 80 counter accept`" in told["sentence"]
    assert {"change": "netinit apply --reconcile", "verdict": "captured"} in told["changes"]


def test_a_chain_in_our_tables_that_the_kernel_enters_elsewhere_is_a_foreign_one(pod):
    apply_in(pod, Options.from_argv([*SIDECAR, "--native-nftables", "--ipv6", "on"]))
    pod.run(["nft", "add chain inet istio-proxy-nat mine { type filter hook output priority 5; policy drop; }"], check=True)
    told = explain(pod, "--to", f"{OUTSIDE}:81")
    assert told["verdict"] == "dropped"
    assert "mine" in told["sentence"]


# What nft makes, and what happens to a first packet where it is not captured. A captured outbound one comes in again, through lo.
FOREIGN_TABLES = {
    "a firewall of what is captured": ("inet theirs", "type filter hook output priority 0; policy accept; tcp dport 80 counter drop;", {}),
    "a firewall": ("inet theirs", "type filter hook output priority 0; policy accept; tcp dport 15001 counter drop;", {"outbound": "dropped"}),
    "a policy alone": ("inet theirs", "type filter hook output priority 0; policy drop;", {"outbound": "dropped"}),
    "no rule at all": ("inet theirs", "type filter hook output priority 0; policy accept;", {}),
    "inbound NAT": ("ip theirs", "type nat hook prerouting priority -110; policy accept; tcp dport 80 redirect to :9;", {"inbound": "direct"}),
    "another family": ("ip6 theirs", "type filter hook output priority 0; policy accept; counter drop;", {}),
    "a chain that is not entered": ("inet theirs", "counter drop;", {}),
    "a device": ("netdev theirs", "type filter hook ingress device eth0 priority 0; policy accept; counter drop;", {"inbound": "dropped"}),
    "forwarding": ("inet theirs", "type filter hook forward priority 0; policy drop;", {}),
    "what is unknown": (
        "inet theirs", "type nat hook output priority -150; policy accept; meta l4proto tcp numgen random mod 2 0 redirect to :9;", {"outbound": "unknown"}
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FOREIGN_TABLES)
def test_what_a_foreign_table_does_is_part_of_the_answer(pod, case):
    table, chain, other = FOREIGN_TABLES[case]
    apply_in(pod, Options.from_argv([*SIDECAR, "--backend", "iptables-nft", "--ipv6", "on"]))
    pod.run(["nft", f"table {table} {{ chain mine {{ {chain} }}; }}"], check=True)
    asked = {"outbound": ("--to", f"{OUTSIDE}:80"), "inbound": ("inbound", "--to-port", "80")}
    for direction in choose([*other, *asked][:1], [*asked]):
        told = explain(pod, *asked[direction])
        assert told["verdict"] == other.get(direction, "captured"), told["sentence"]
        if told["verdict"] in ("dropped", "unknown"):
            assert f"nft table {table}" in told["sentence"]


# Of a pod with eth1, which is excluded: rules and routes that lead connections to OUTSIDE out through it, or some of them.
WAYS = {
    "by the source": ("ip rule add from 10.78.0.2 lookup 100", {"source": "10.78.0.2"}),
    "by the destination": (f"ip rule add to {OUTSIDE} lookup 100", {}),
    "by the mark": ("ip rule add fwmark 0x99 lookup 100", {"mark": 0x99}),
    "by the user": ("ip rule add uidrange 1000-1000 lookup 100", {}),
    "by several next hops": (f"ip route add {OUTSIDE} nexthop via 10.77.0.1 dev eth0 nexthop via 10.78.0.1 dev eth1 weight 200", {}),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_where_the_way_depends_on_more_than_the_destination_both_ways_are_answered(way, require_netns):
    command, probe = WAYS[way]
    words = ("--to", f"{OUTSIDE}:80", "--uid", "1000", *(("--mark", str(probe["mark"])) if "mark" in probe else ()))
    asserted = f"outbound ipv4 tcp to {OUTSIDE} not by proxy is captured"
    with Pod(interfaces=("eth1",)) as pod:
        start_servers(pod)
        apply_in(pod, Options.from_argv([*SIDECAR, "-c", "eth1"]))
        if way in choose(["by the source"], WAYS):
            assert explain(pod, *words)["verdict"] == "captured"
            assert run_tool(pod, "audit", "--live", "--assert", asserted).returncode == 0
        for line in ("ip route add default via 10.78.0.1 dev eth1 table 100", command):
            pod.run(["sh", "-c", line], check=True)
        ends = [pod.probe([Probe(OUTSIDE, 80, uid=1000, gid=1000, **probe)])[0].server for _ in range(3)]
        told, audited = explain(pod, *words), run_tool(pod, "audit", "--live", "--assert", asserted)
    assert ends != ["proxy"] * 3, "the connections leave through eth1, where they are not captured"
    several = way in ("by the source", "by several next hops")  # the question says the destination, the mark and the user
    assert told["verdict"] == ("unknown" if several else "direct"), told["sentence"]
    assert ("captured through eth0, direct through eth1" in told["sentence"]) is several
    assert audited.returncode == 4, audited.stdout


def test_what_a_foreign_tproxy_takes_goes_to_its_socket_and_without_one_nowhere(require_netns):
    """As transparent proxies of users (v2ray, Clash) do: a mark in OUTPUT brings the packets to lo, where TPROXY takes them."""
    needs("iptables-nft")
    for taken in choose([False], [False, True]):
        with Pod() as alone:
            start_servers(alone, proxy=(15001, 15006, *[7893][:taken]), transparent=[7893][:taken])
            apply_in(alone, Options.from_argv(SIDECAR))
            alone.run(["sh", "-ec", "ip rule add fwmark 1 lookup 100; ip route add local default dev lo table 100"], check=True)
            for words in ("OUTPUT -p tcp --dport 80 -j MARK --set-mark 1", "PREROUTING -i lo -p tcp -m mark --mark 1 -j TPROXY --on-port 7893 --on-ip 127.0.0.1 --tproxy-mark 1"):
                alone.run(["iptables-nft", "-w", "-t", "mangle", "-A", *words.split()], check=True)
            (end,) = alone.probe([Probe(OUTSIDE, 80, uid=2000, gid=2000, timeout=1)])
            told = explain(alone, "--to", f"{OUTSIDE}:80", "--uid", "2000", "--gid", "2000")
        assert (told["verdict"], "the transparent socket on port 7893" in told["sentence"]) == ("direct", True), told["sentence"]
        assert "a rule that is not netinit's: `-i lo -p tcp" in told["sentence"]
        (listener,) = told["listeners"]
        assert (listener["outcome"] == "accepted") is (end.outcome == "answered"), (end, listener)
        assert listener["outcome"] == ("accepted" if taken else "unanswered"), listener


NFT_TPROXY = """table ip theirs {{
    chain in {{
        type filter hook prerouting priority -155
        tcp dport 8080 tproxy to :7893 meta mark set 1{verdict}
        tcp dport 8080 {behind}
    }}
}}
"""


@pytest.mark.parametrize(
    ("verdict", "behind", "is_open"),
    choose([(" accept", "counter", False), ("", "drop", True)], [(verdict, behind, is_open) for verdict in (" accept", "") for behind in ("counter", "drop") for is_open in (False, True)]),
)  # fmt: skip
def test_nfts_tproxy_without_a_socket_leaves_the_connection_to_the_next_rule(require_netns, verdict, behind, is_open):
    needs("nftables")
    with Pod(ipv6=False) as alone:
        start_servers(alone, proxy=(15001, 15006, *[7893][:is_open]), transparent=[7893][:is_open])
        apply_in(alone, Options.from_argv(SIDECAR))
        alone.run(["sh", "-ec", "ip rule add fwmark 1 lookup 100; ip route add local default dev lo table 100"], check=True)
        alone.run(["nft", "-f", "-"], stdin=NFT_TPROXY.format(verdict=verdict, behind=behind), check=True)
        end = alone.client.connect(alone.address, 8080)
        told = explain(alone, "inbound", "--from", "10.77.0.1", "--to-port", "8080")
        report = run_tool(alone, "verify").stdout
    if behind == "drop" and not (is_open and verdict):
        assert end.outcome == "timeout"
        assert told["verdict"] == ("dropped" if is_open or not verdict else "unknown"), told["sentence"]
    elif is_open:
        assert told["verdict"] == "direct", told["sentence"]
        assert end.port != 15006
    else:
        assert end.port == 15006
        assert told["verdict"] == "unknown", told["sentence"]
        assert "it cannot be known here whether `a transparent socket on port 7893 is open` holds" in told["sentence"]
    assert ("captured packets escape there" in report) is (told["verdict"] == "direct"), report
    assert ("it may divert packets" in report) is (told["verdict"] == "unknown"), report


NO_WAY = {
    "no default route": ("ip route del default", "no route leads there"),
    "an unreachable network": ("ip route add unreachable 203.0.113.0/24", "the route unreachable 203.0.113.0/24 of table 254 refuses it"),
    "a black hole": (f"ip route add blackhole {OUTSIDE}", "the route blackhole"),
    "a forbidden network": (f"ip route add prohibit {OUTSIDE}", "the route prohibit"),
    "a policy rule of a user": (f"ip rule add uidrange {APP_ID}-{APP_ID} to {OUTSIDE} prohibit", "a policy rule refuses it"),
}


def test_where_no_route_leads_out_nothing_is_captured_because_the_kernel_refuses_the_socket(require_netns):
    for way in choose(["no default route"], NO_WAY):
        command, words = NO_WAY[way]
        with Pod() as pod:
            start_servers(pod)
            apply_in(pod, Options.from_argv(SIDECAR))
            pod.run(["sh", "-c", command], check=True)
            ends = pod.probe([Probe(OUTSIDE, 80, uid=one, gid=one) for one in (APP_ID, PROXY_ID)])
            for uid, end in zip((APP_ID, PROXY_ID), ends, strict=True):
                told = explain(pod, "--to", f"{OUTSIDE}:80", "--uid", str(uid), "--gid", str(uid))
                assert (told["verdict"] == "dropped") == (end.outcome != "answered"), (way, end, told["sentence"])
                assert (words in told["sentence"]) == (end.outcome != "answered"), (way, told["sentence"])
            near = explain(pod, "--to", "10.77.0.1:80", "--uid", str(APP_ID))
            assert near["verdict"] == "captured", near["sentence"]


@crossed(backend=("iptables-nft", "nftables"), network=("198.19.0.0/16", "fd19::/64"))
def test_networks_that_routes_deliver_to_this_host_are_answered_as_the_kernel_does(pod, backend, network):
    needs(backend)
    flags = [*SIDECAR, "--backend", backend, "--ipv6", "on"]
    start_servers(pod)
    apply_in(pod, Options.from_argv(flags))
    pod.run(["ip", "route", "add", "local", network, "dev", "lo"], check=True)
    address = network.partition("/")[0].removesuffix("0.0") + ("1" if ":" in network else "1.1")
    fates = {"app": ("direct", "stays in the pod"), "proxy": ("captured", "15001"), "inbound": ("captured", "15006")}
    for uid in (APP_ID, PROXY_ID):
        end = pod.probe([Probe(address, 80, uid=uid, gid=uid)])[0]
        source = end.peer.rpartition(":")[0].strip("[]")  # the kernel's choice, which may be the address of the pass-through cluster
        verdict, words = fates.get("inbound" if uid == PROXY_ID and end.server == "proxy" else end.server, ("dropped", ""))
        told = explain(pod, "--from", source, "--to", f"[{address}]:80" if ":" in address else f"{address}:80", "--uid", str(uid), "--gid", str(uid), *flags)
        assert told["verdict"] == verdict, (uid, end, told["sentence"])
        assert words in told["sentence"], (uid, end, told["sentence"])


def test_datagrams_to_broadcast_addresses_and_groups_reach_the_application(pod):
    needs("iptables-nft")
    apply_in(pod, Options.from_argv([*SIDECAR, "--backend", "iptables-nft", "--ipv6", "on"]))
    targets = {4: ("255.255.255.255", "10.77.0.255", "224.0.0.1"), 6: ("ff02::1",)}
    for version, addresses in targets.items():
        family = {4: socket.AF_INET, 6: socket.AF_INET6}[version]
        with pod.entered():
            hearing = socket.socket(family, socket.SOCK_DGRAM)
        with pod.client.entered():
            speaking = socket.socket(family, socket.SOCK_DGRAM)
        with hearing, speaking:
            hearing.bind(("", 9999))
            speaking.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            speaking.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth0")
            for address in addresses:
                speaking.sendto(address.encode(), (address, 9999))
                assert hearing.recv(100) == address.encode()
                answer = explain(pod, "--udp", "--from", {4: "10.77.0.1", 6: "fd77::1"}[version], "--to", f"[{address}]:9999" if version == 6 else f"{address}:9999")
                assert answer["verdict"] == "direct", answer
    done = run_tool(pod, "audit", "--live", "--assert", "inbound ipv4 udp to 10.77.0.255 is dropped", *SIDECAR)
    assert done.returncode == 4, done.stdout


def test_a_captured_connection_to_a_link_local_neighbour_is_not_answered_and_explain_says_so(require_netns):
    connect = (
        "import socket, sys\n"
        "with socket.socket(socket.AF_INET6) as one:\n"
        "    one.settimeout(2)\n"
        "    try:\n"
        "        one.connect((sys.argv[1], 80, 0, socket.if_nametoindex('eth0')))\n"
        "    except TimeoutError:\n"
        "        print('timeout')\n"
        "    except OSError as error:\n"
        "        print(error.strerror)"
    )
    with Pod() as pod:
        start_servers(pod)
        listed = pod.client.run(["ip", "-6", "-j", "address", "show", "scope", "link"], check=True).stdout
        neighbour = next(one["local"] for link in json.loads(listed) for one in link.get("addr_info", ()) if "local" in one)
        words = ("python3", "-c", connect, neighbour)
        assert "timeout" not in pod.run(words, check=True).stdout  # it answers, or refuses
        applied = run_tool(pod, "apply", "-b", "*", "-i", "*", "--ipv6", "on")
        assert applied.returncode == 0, applied.stderr
        assert pod.run(words, check=True).stdout == "timeout\n"
        done = run_tool(pod, "explain", "--live", "--to", f"[{neighbour}]:80", "--uid", "0")
        other = run_tool(pod, "explain", "--live", "--to", "[2001:db8::7]:80", "--uid", "0")
    assert "warning: the proxy does not answer this connection" in done.stderr, done.stdout + done.stderr
    assert "does not answer" not in other.stderr


def test_with_tproxy_the_answers_to_a_forwarded_connection_are_diverted_and_explain_says_so(require_netns):
    probe = Probe("203.0.113.7", 80)
    with Pod(interfaces=("tap0",)) as pod:
        start_servers(pod)
        found = []
        for mode in ("REDIRECT", "TPROXY"):
            words = ("apply", "-b", "*", "-i", "*", "-c", "tap0", "-m", mode, "--reconcile")
            applied = run_tool(pod, *words)
            assert applied.returncode == 0, applied.stderr
            (arrived,) = arrivals(pod.neighbours["tap0"], probe)
            asked = run_tool(pod, "explain", "--live", "inbound", "--interface", "tap0", "--from", "10.78.0.1", "--to", "203.0.113.7:80")
            found.append((arrived, asked.stdout.split(":")[0], "its answer does not come back: it is delivered to this pod" in asked.stdout))
    assert found == [(("outside", 80), "direct", False), ("timeout", "direct", True)]


UNKNOWABLE = (
    "limit --limit 5/sec", "statistic --mode random --probability 0.5", "statistic --mode nth --every 2 --packet 0", "recent --name x --set",
    "hashlimit --hashlimit-above 5/sec --hashlimit-mode srcip --hashlimit-name x", "connlimit --connlimit-above 20", "quota --quota 1000",
)  # fmt: skip
ENDS = {  # of a foreign rule with such a match: what may become of a connection that the plan captures
    ("filter", "LOG"): {"captured"}, ("filter", "ACCEPT"): {"captured"}, ("mangle", "MARK --set-mark 7"): {"captured"},
    ("filter", "DROP"): {"captured", "dropped"}, ("mangle", "DROP"): {"captured", "dropped"}, ("filter", "REJECT"): {"captured", "dropped"},
    ("nat", "ACCEPT"): {"captured", "dropped", "direct"},
}  # fmt: skip


@pytest.mark.parametrize("match", UNKNOWABLE)
def test_a_match_that_depends_on_earlier_packets_leaves_open_only_what_its_rule_can_do(pod, variant, match):
    start_servers(pod)
    assert run_tool(pod, "apply", *SIDECAR, "--istio-exact", "--backend", variant).returncode == 0
    for (table, target), ends in choose(list(ENDS.items())[UNKNOWABLE.index(match) % 3 :: 3], list(ENDS.items())):
        rule = f"-t {table} {{}} OUTPUT -p tcp -m {match} -j {target}"
        damage(pod, variant, rule.format("-I"))
        found = explain(pod, "--to", f"{OUTSIDE}:80", "--uid", str(APP_ID), "--gid", str(APP_ID), "--istio-exact")
        expected = ("captured", False) if ends == {"captured"} else ("unknown", "direct" not in ends)
        assert (found["verdict"], found["captured_or_dropped"]) == expected, rule
        for _ in range(2):
            arrived = pod.connect(OUTSIDE, 80, uid=APP_ID, gid=APP_ID, timeout=0.4)
            real = "dropped" if arrived.outcome != "answered" else "captured" if arrived.server == "proxy" else "direct"
            assert real in ends, rule
        damage(pod, variant, rule.format("-D"))
