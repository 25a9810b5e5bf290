"""Options: where a value comes from, what the defaults are, what cannot stand together."""

from __future__ import annotations

import pickle
import pwd
from types import SimpleNamespace

import pytest

from netinit.base.errors import OptionError
from netinit.base.net import Network
from netinit.options import FLAGS, Interception, Options, kinds
from netinit.options.kinds import Flag
from option_samples import SAMPLES
from sweeps import together


def problems(arguments, environ=None):
    with pytest.raises(OptionError) as caught:
        Options.from_argv(arguments, environ or {})
    return caught.value.problems


def sample(flag: Flag) -> tuple[str, str]:
    if flag.field == "backend":
        return "nftables", "ebtables"
    return SAMPLES[flag.kind.metavar]


NAMED = [flag for flag in FLAGS if flag.long]
FROM_ENVIRONMENT = [(flag, name) for flag in FLAGS for name in flag.variables]


def with_companions(flag: Flag, environ: dict[str, str]) -> dict[str, str]:
    """--cni-mode wants a namespace, and options of one layout want that layout."""
    if "current" not in (flag.layouts or ("current",)):
        environ = {**environ, "NETINIT_LAYOUT": flag.layouts[0]}
    return {**environ, "NETWORK_NAMESPACE": "blue"} if flag.field == "cni_mode" else environ


@together("flag", NAMED, ids=lambda flag: flag.long)
def test_every_flag_sets_its_field_in_each_spelling(flag):
    good, _ = sample(flag)
    environ = with_companions(flag, {})
    spellings = [[f"--{name}={good}"] for name in (flag.long, *flag.aliases)]
    if flag.kind is kinds.SWITCH:
        spellings += [[f"--{flag.long}"], *([[f"-{flag.short}"], [f"-{flag.short}={good}"]] if flag.short else [])]
    else:
        spellings.append([f"--{flag.long}", good])
        if flag.short:
            spellings += [[f"-{flag.short}", good], [f"-{flag.short}={good}"], [f"-{flag.short}{good}"]]
    for words in spellings:
        value = getattr(Options.from_argv(words, environ), flag.field)
        assert value == flag.kind.read(good), words
        assert value != getattr(Options(), flag.field), words


@together(("flag", "name"), FROM_ENVIRONMENT, ids=lambda x: x if isinstance(x, str) else "")
def test_every_variable_sets_its_field_and_a_flag_goes_before_it(flag, name):
    good, _ = sample(flag)
    made = Options.from_argv([], with_companions(flag, {name: good}))
    assert getattr(made, flag.field) == flag.kind.read(good)
    assert getattr(made, flag.field) != getattr(Options(), flag.field)
    if flag.long:
        default = getattr(Options.from_argv([]), flag.field)
        text = flag.kind.write(default)
        if flag.kind.metavar not in ("PID", "PATH"):  # none is not one: it can only be left out
            assert getattr(Options.from_argv([f"--{flag.long}={text}"], with_companions(flag, {name: good})), flag.field) == default


@together("flag", [flag for flag in NAMED if sample(flag)[1]], ids=lambda flag: flag.long)
def test_every_bad_value_is_reported_with_the_flag_as_it_was_written(flag):
    _, bad = sample(flag)
    for spelled in (f"--{flag.long}", *([f"-{flag.short}"] if flag.short else [])):
        (problem,) = problems([f"{spelled}={bad}"])
        assert problem.startswith(f"{spelled}: {bad!r} ") or f"{bad.split(',')[-1]!r}" in problem
        assert problem.startswith(f"{spelled}: ")
        assert "\n" not in problem


@together(
    ("flag", "name"),
    [(flag, name) for flag, name in FROM_ENVIRONMENT if sample(flag)[1]],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_a_variable_that_does_not_parse_is_an_error_that_names_it(flag, name):
    _, bad = sample(flag)
    (problem,) = problems([], {name: bad})
    assert problem.startswith(f"environment variable {name}: ")


def test_a_bad_variable_does_not_matter_where_a_flag_is_given():
    assert Options.from_argv(["-b", "80"], {"ISTIO_INBOUND_PORTS": "http"}).inbound_ports == (80,)


def test_an_empty_variable_counts_as_unset_and_an_empty_flag_as_empty():
    assert Options.from_argv([], {"INBOUND_CAPTURE_PORT": "", "DRY_RUN": ""}) == Options.from_argv([])
    assert Options.from_argv(["-b", ""], {"ISTIO_INBOUND_PORTS": "80"}).inbound_ports == ()


def test_the_variable_that_kubernetes_sets_for_a_service_named_envoy_is_not_read():
    assert Options.from_argv([], {"ENVOY_PORT": "tcp://10.96.0.1:80"}).outbound_port == 15001
    assert next(flag for flag in FLAGS if flag.field == "outbound_port").variables == ()


def test_the_extra_variables_of_istio_count_after_the_regular_ones():
    assert Options.from_argv([], {"ISTIO_META_DNS_CAPTURE": "true"}).redirect_dns
    assert Options.from_argv([], {"INVALID_DROP": "true"}).drop_invalid
    assert Options.from_argv([], {"ISTIO_DUAL_STACK": "true"}).dual_stack
    assert not Options.from_argv([], {"ISTIO_META_DNS_CAPTURE": "true", "REDIRECT_DNS": "false"}).redirect_dns


def test_every_flag_has_a_variable_of_its_own_but_the_proxy_port():
    names = [name for flag in FLAGS for name in flag.variables]
    assert len(names) == len(set(names))
    assert [flag.long for flag in FLAGS if not flag.variables] == ["envoy-port"]
    shorts = [flag.short for flag in FLAGS if flag.short]
    assert len(shorts) == len(set(shorts))


def test_every_field_has_a_flag_and_every_flag_a_field():
    assert [flag.field for flag in FLAGS] == list(Options._fields)


def test_the_defaults_are_those_of_istio():
    made = Options.from_argv([])
    assert (made.outbound_port, made.inbound_port, made.tunnel_port, made.probe_port) == (15001, 15006, 15008, 15002)
    assert (made.proxy_uids, made.proxy_gids) == ((1337,), (1337,))
    assert (made.inbound_mode, made.inbound_ports, made.outbound_cidrs) == ("REDIRECT", (), ())
    assert (made.tproxy_mark, made.tproxy_table, made.probe_timeout) == (1337, 133, 5 * 10**9)
    assert (made.loopback_cidr, made.owner_groups) == (Network.parse("127.0.0.1/32"), "*")
    assert made == Options()


def test_derived_defaults_follow_the_options_that_they_derive_from():
    assert Options.from_argv(["-u", "4,5"]).proxy_gids == (4, 5)
    assert Options.from_argv(["-u", "4", "-g", "6"]).proxy_gids == (6,)
    assert Options.from_argv(["-m", ""]).inbound_mode == "REDIRECT"
    assert Options.from_argv(["-p", "9000"]).inbound_port == 15006
    assert Options.from_argv(["-p", "9000", "--layout", "classic"]).inbound_port == 9000
    assert Options.from_argv(["--layout", "classic"]).proxy_uids == (1337, 0)
    assert Options.from_argv(["--layout", "classic", "-u", "1337"]).proxy_gids == (1337,)


def test_the_proxys_default_user_is_found_by_name():
    somebody = next(user for user in pwd.getpwall() if user.pw_uid not in (0, 1337))
    assert Options.from_argv([], {"ENVOY_USER": somebody.pw_name}).proxy_uids == (somebody.pw_uid,)
    assert Options.from_argv([], {"ENVOY_USER": "nobody-here"}).proxy_uids == (1337,)
    assert Options.from_argv(["-u", "7"], {"ENVOY_USER": somebody.pw_name}).proxy_uids == (7,)


def test_all_that_is_wrong_is_reported_at_once():
    found = problems(
        ["-p", "0", "-i", "-b", "80", "--proxy-uid=ghost", "--nonsense", "stray", "loose"], {"PROBE_TIMEOUT": "soon", "DUAL_STACK": "maybe"}
    )
    assert [problem.partition(":")[0] for problem in found] == [
        "-i",
        "'--nonsense' is not an option; --help lists them",
        "'loose' is not an option; quote values that hold blanks or *",
        "-p",
        "--proxy-uid",
        "environment variable DUAL_STACK",
        "environment variable PROBE_TIMEOUT",
    ]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("--pid 1 --netns blue", "--pid: a namespace is named by --network-namespace already"),
        ("--cni-mode", "--cni-mode: rules would go into the host's namespace"),
        ("--force-iptables-binary nft --backend iptables-legacy", "contradicts --backend iptables-legacy"),
        ("--native-nftables --force-iptables-binary nft", "--native-nftables: contradicts"),
        ("-m TPROXY -t 1338", "'1338' marks the proxy's own connections"),
        ("--layout classic -q 80", "--istio-outbound-ports: --layout classic (Istio 1.0 and 1.1) has no such rules"),
        ("--layout classic --redirect-dns", "--redirect-dns: --layout classic"),
        ("--layout classic -e 15009", "--inbound-tunnel-port: --layout classic"),
    ],
)
def test_options_that_cannot_stand_together_are_refused(line, problem):
    (found,) = problems(line.split())
    assert problem in found


@pytest.mark.parametrize(
    "line", ["--cni-mode --pid 1", "--cni-mode --netns blue", "--cni-mode -n", "--backend iptables-nft --force-iptables-binary nft"]
)
def test_options_that_can_stand_together_are_taken(line):
    assert Options.from_argv(line.split())


def test_values_may_be_given_typed_or_as_the_flag_spells_them():
    assert Options(inbound_ports="80,443") == Options(inbound_ports=(80, 443))
    assert Options(outbound_cidrs="10.1.1.1/8") == Options(outbound_cidrs=(Network.parse("10.0.0.0/8"),))
    assert Options(probe_timeout="1m") == Options(probe_timeout=60 * 10**9)
    assert Options(inbound_ports="*").replace(exclude_inbound_ports="22").exclude_inbound_ports == (22,)


def test_typed_values_are_checked_like_texts():
    with pytest.raises(OptionError) as caught:
        Options(outbound_port=0, exclude_interfaces=("eth0 -j ACCEPT",), inbound_mode="redirect")
    assert [problem.partition(":")[0] for problem in caught.value.problems] == ["outbound_port", "exclude_interfaces", "inbound_mode"]
    with pytest.raises(OptionError, match="outbound_prot: there is no such option; did you mean outbound_port"):
        Options(outbound_prot=1)
    with pytest.raises(OptionError, match="outbound_port: '70000'"):
        Options().replace(outbound_port=70000)


@pytest.mark.parametrize(
    ("field", "value", "type_name"),
    [("dry_run", 0, "int"), ("tproxy_mark", 1337.0, "float"), ("outbound_port", True, "bool"), ("inbound_ports", 80, "int"), ("inbound_ports", None, "NoneType"),
     ("loopback_cidr", b"127.0.0.1/32", "bytes"), ("netns", 5, "int"), ("proxy_uids", 1337, "int")],
)  # fmt: skip
def test_a_value_of_a_wrong_type_is_an_option_error_that_names_the_field(field, value, type_name):
    with pytest.raises(OptionError) as caught:
        Options(**{field: value})
    (problem,) = caught.value.problems
    assert problem.startswith(f"{field}: ")
    assert type_name in problem or "is not" in problem, problem


def test_what_follows_from_other_options_follows_again_when_they_are_replaced():
    assert Options().replace(proxy_uids=(5,)).proxy_gids == (5,)
    assert Options(proxy_gids=(7,)).replace(proxy_uids=(5,)).proxy_gids == (7,)
    assert Options(layout="classic").replace(outbound_port=16001).inbound_port == 16001
    assert Options(layout="classic").replace(layout="current").proxy_uids == (1337,)
    assert Options.from_argv(["-u", "5"]).replace(dry_run=True).proxy_gids == (5,)
    copied = pickle.loads(pickle.dumps(Options(proxy_uids=(5,))))
    assert copied == Options(proxy_uids=(5,))
    assert copied.replace(proxy_uids=(6,)).proxy_gids == (6,)


def test_what_is_captured_and_how_it_is_run_are_told_apart():
    run = {flag.field for flag in FLAGS} - {flag.field for flag in Interception.flags}
    assert {"netns", "pid", "backend", "log_as_json", "dry_run", "lock_timeout", "rule_comments", "ipset_threshold"} <= run
    assert {"layout", "ipv6", "dns_servers", "inbound_ports"} <= {flag.field for flag in Interception.flags}


IDENTITIES = [
    "",
    "-p 15001 -z 15006 -u 1337 -m REDIRECT -i * -x  -b * -d 15090,15021,15020",
    "-p 4000 -z 4001 -u 0 -g 7 -m TPROXY -b 80 -i 10.0.0.0/8,fd00::/8 -x 10.1.0.0/16 -t 9 -r 99",
    "--layout classic",
    "--layout classic -p 9000 -u 1337",
    "--layout classic -p 9000 -z 15006 -u 1337,0 -g 0",
    "--layout classic -u 1337 -g 1337",
    "--redirect-dns --capture-all-dns --dns-servers 10.0.0.1,fd00::1 -c eth1 -k net1 -n --ipv6 off",
    "--netns=-odd --probe-timeout 1m30s --backend nftables --debug",
    "-u 1337,1338",
]


@pytest.mark.parametrize("line", IDENTITIES)
def test_arguments_become_options_and_options_the_arguments_again(line):
    made = Options.from_argv(line.replace("-x  ", "-x= ").split())
    assert Options.from_argv(made.to_argv()) == made
    assert Options.from_argv(made.to_argv(always=[flag.field for flag in NAMED if flag.field != "pid" and (flag.kind.empty or flag.kind.write(getattr(made, flag.field)))])) == made


def test_the_command_line_that_is_written_is_short():
    assert Options().to_argv() == ()
    assert Options(dry_run=True, inbound_ports="*").to_argv() == ("-b", "*", "-n")
    assert Options().to_argv(always=("dry_run", "inbound_port")) == ("-z", "15006", "-n=false")


def test_the_proxys_user_is_written_where_this_system_has_another_default(monkeypatch):
    istio = SimpleNamespace(pw_uid=999)
    monkeypatch.setattr(pwd, "getpwnam", {"istio-proxy": istio}.__getitem__)
    made = Options(proxy_uids=(1337,))
    assert made.to_argv() == ("-u", "1337")
    assert Options(proxy_uids=(999,)).to_argv() == ()
    assert Options.from_argv(()).proxy_uids == (999,)


def test_what_has_no_flag_travels_in_the_environment():
    made = Options.from_argv(
        ["-b", "80"],
        {
            "ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR": "127.0.0.0/8",
            "ISTIO_OUTBOUND_OWNER_GROUPS": "1,2",
            "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE": "3",
        },
    )
    assert (made.loopback_cidr.length, made.owner_groups, made.exclude_owner_groups) == (8, (1, 2), (3,))
    assert Options.from_argv(made.to_argv(), made.to_environ()) == made
    classic = Options.from_argv(["--layout", "classic"], {"DISABLE_REDIRECTION_ON_LOCAL_LOOPBACK": "1"})
    assert classic.keep_local_loopback
    assert Options.from_argv(classic.to_argv(), classic.to_environ()) == classic
    assert Options().to_environ() == {}


@pytest.mark.parametrize(
    ("text", "level"),
    [("default:debug", "debug"), ("warn", "warn"), ("all:none", "none"), ("iptables:debug", "info"), ("x:debug,default:error", "error"), ("", "info")],
)
def test_the_log_level_is_that_of_the_default_scope(text, level):
    assert Options(log_output_level=text).log_level == level


def test_every_bad_item_of_every_list_is_named_at_once():
    with pytest.raises(OptionError) as caught:
        Options(inbound_ports="80,abc,70000", outbound_cidrs=("10.0.0.0/33", "foo"))
    ports, networks = caught.value.problems
    assert all(f"'{item}'" in ports for item in ("abc", "70000")), ports
    assert all(f"'{item}'" in networks for item in ("10.0.0.0/33", "foo")), networks
