"""`netinit check`: a repository's pods as they will be created, its settings and its baseline."""

from __future__ import annotations

import json
import os

import pytest
import yaml

import netinit

POD = """
apiVersion: v1
kind: Pod
metadata: {name: NAME, namespace: shop, labels: {sidecar.istio.io/inject: "true"}, annotations: {ANNOTATIONS}}
spec: {containers: [{name: app, image: a}]}
"""
EXCLUDED = 'traffic.sidecar.istio.io/excludeOutboundPorts: "5432"'
FAMILIES = "ipFamilies: [ipv4]\n"


def pod(name="web", annotations="a: b"):
    return POD.replace("NAME", name).replace("ANNOTATIONS", annotations)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(**files):
        for name, text in files.items():
            (tmp_path / f"{name}.yaml").write_text(text)
        return tmp_path

    return write


def test_untouched_pods_pass_and_families_are_asked_for_once(run, here):
    here(pods="---".join([pod("one"), pod("two"), pod("three")]))
    done = run(["netinit", "check", "."])
    assert (done.code, done.out.splitlines()[0]) == (0, "✔ 3 pods: nothing to act on")
    assert done.out.count("NI116: 3 pods: IPv6 is not captured where the first address is IPv4") == 1
    assert run(["netinit", "audit", "pods.yaml", "--fail-on", "bypass"]).code == 0


@pytest.mark.parametrize(("families", "code"), [("[ipv4]", 0), ("[ipv6]", 0), ("[ipv6, ipv4]", 0), ("[ipv4, ipv6]", 4)])
def test_the_settings_say_which_addresses_the_clusters_pods_have(run, here, families, code):
    here(pod=pod(), netinit=f"ipFamilies: {families}\n")
    done = run(["netinit", "check", "pod.yaml"])
    assert (done.code, "NI116" in done.out, "NI203" in done.out) == (code, False, bool(code)), done.out
    assert done.err == "note: settings of netinit.yaml\n"
    words = ["--settings", "netinit.yaml", "pod.yaml"]
    assert run(["netinit", "audit", "--fail-on", "bypass", *words]).code == code
    assert netinit.audit(pod="pod.yaml", settings="netinit.yaml").text.count("IPv6 that is not captured") == (2 if code else 0)


def test_a_pods_own_addresses_come_before_the_clusters(run, here):
    here(pod=pod() + "status: {podIPs: [{ip: 10.0.0.9}, {ip: 'fd00::9'}]}\n", netinit=FAMILIES)
    assert "NI203" in run(["netinit", "check", "pod.yaml"]).out


def test_a_network_of_one_family_is_no_finding_in_a_cluster_of_that_family(run, here):
    here(pod=pod(annotations='traffic.sidecar.istio.io/includeOutboundIPRanges: "10.0.0.0/8"'), netinit=FAMILIES)
    assert "NI013" in run(["netinit", "lint", "pod.yaml"]).out
    assert "NI013" not in run(["netinit", "lint", "pod.yaml", "--settings", "netinit.yaml"]).out


@pytest.mark.parametrize(("text", "problem"), [
    ("ipFamilies: [ipv5]", "ipFamilies: write [ipv4], [ipv6], or both"), ("ipFamily: ipv4", "ipFamily: there is no such setting; did you mean ipFamilies?"),
    ("assume: yes", "assume: write one of injected, cni, none"), ("valuesFile: ../v.yaml", "valuesFile: '../v.yaml' is not below the folder"),
    ("baseline: /etc/b.yaml", "baseline: '/etc/b.yaml' is not below the folder"), ("accept: {NI108: ''}", "'NI108' has no reason"),
    ("strict: 1", "strict: write true or false"), ("[a]", "is not a mapping"), ("exclude: ['']", "exclude: write a text or a list of texts"),
    ("a: [", "s.yaml:2:1: a value is missing here"), ("strict: true\nstrict: false", "s.yaml:2:9: the key 'strict' occurs twice"),
])  # fmt: skip
def test_a_wrong_setting_is_an_error_that_names_it(run, here, text, problem):
    here(pod=pod(), s=text)
    for command in ("check", "lint", "audit"):
        done = run(["netinit", command, "--settings", "s.yaml", "pod.yaml"])
        assert (done.code, done.out) == (2, ""), done
        assert problem in done.err


def test_a_setting_names_no_file_behind_a_link_out_of_its_folder(run, here):
    folder = here(pod=pod(), s="valuesFile: v.yaml")
    (folder / "v.yaml").symlink_to("/etc/hostname")
    assert "is not below the folder" in run(["netinit", "check", "--settings", "s.yaml", "pod.yaml"]).err


def test_settings_that_the_gates_need_count(run, here):
    here(pod=pod(annotations=EXCLUDED), bad=pod("bad", EXCLUDED), netinit="ipFamilies: [ipv4]\nexclude: [bad.yaml]\naccept: {NI212: TLS}\n")
    done = run(["netinit", "check", "."])
    assert (done.code, done.out.splitlines()[0]) == (0, "✔ 1 pod: nothing to act on, 1 accepted; no pod in 1 file, 1 file excluded")
    here(netinit="failOn: ['bypass:network']\n")
    assert run(["netinit", "check", "."]).code == 0
    assert run(["netinit", "check", ".", "--fail-on", "bypass:port"]).code == 4


def test_a_baseline_accepts_todays_findings_and_no_new_ones(run, here):
    folder = here(one=pod("one", EXCLUDED), two=pod("two"), netinit=FAMILIES)
    assert run(["netinit", "check", "."]).code == 4
    words = ["netinit", "check", ".", "--baseline", "b.yaml"]
    assert run([*words, "--write-baseline"]).code == 0
    kept = (folder / "b.yaml").read_text()
    (entry,) = yaml.safe_load(kept)["findings"]
    assert (entry["file"], entry["pod"], entry["code"]) == ("one.yaml", 'Pod "shop/one"', "NI212")
    assert (run(words).code, run(words).out.splitlines()[0]) == (0, "✔ 2 pods: nothing to act on, 1 accepted; no pod in 2 files")

    here(one="# a comment moves its lines\n" + pod("one", EXCLUDED))
    assert run([*words, "--write-baseline"]).code == 0
    assert (folder / "b.yaml").read_text() == kept

    here(two=pod("two", EXCLUDED))
    found = run(words)
    assert (found.code, 'Pod "shop/two"' in found.out, 'Pod "shop/one"' in found.out) == (4, True, False)
    here(one=pod("one", EXCLUDED.replace("5432", "5432,6379")))
    assert (run(words).code, "6379" in run(words).out) == (4, True)


def test_entries_that_no_longer_occur_are_notes_unless_their_file_was_not_read(run, here):
    folder = here(one=pod("one", EXCLUDED), two=pod("two", EXCLUDED), netinit=FAMILIES)
    words = ["netinit", "check", "--baseline", "b.yaml"]
    run([*words, ".", "--write-baseline"])
    here(one=pod("one"))
    assert run([*words, "two.yaml"]).out.splitlines() == ["✔ 1 pod: nothing to act on, 1 accepted"]
    found = run([*words, "."])
    assert (found.code, found.out.count("NI117")) == (0, 1)
    (folder / "two.yaml").unlink()
    assert 'in 2 pods: Pod "shop/one", Pod "shop/two"' in run([*words, "one.yaml"]).out
    kept = run([*words, "one.yaml", "--write-baseline"])
    assert (kept.code, yaml.safe_load((folder / "b.yaml").read_text())["findings"]) == (0, [])


def test_a_baseline_means_the_same_from_every_folder(run, here, monkeypatch):
    folder = here(one=pod("one", EXCLUDED), netinit=FAMILIES)
    run(["netinit", "check", ".", "--baseline", "b.yaml", "--write-baseline"])
    (folder / "below").mkdir()
    monkeypatch.chdir(folder / "below")
    words = ["--settings", "../netinit.yaml", "--baseline", "../b.yaml"]
    assert run(["netinit", "check", "../one.yaml", *words]).code == 0
    assert run(["netinit", "check", f"{folder}/one.yaml", *words]).code == 0


@pytest.mark.parametrize("text", ["findings: []", "version: 2\nfindings: []", "version: 1\nfindings: [a]", "version: 1\nfindings: [{code: NI999, text: a}]", "a: [", "version: 1"])
def test_a_file_that_is_no_baseline_is_an_error(run, here, text):
    here(pod=pod(), b=text)
    done = run(["netinit", "check", "pod.yaml", "--baseline", "b.yaml"])
    assert (done.code, done.out) == (2, "")
    assert "--baseline: 'b.yaml'" in done.err or "--baseline: b.yaml:2:1: a value is missing" in done.err
    assert run(["netinit", "check", "pod.yaml", "--baseline", "missing.yaml"]).code == 2
    assert "--write-baseline: needs the file's name" in run(["netinit", "check", "pod.yaml", "--write-baseline"]).err


SHARING = pod("sharing").replace("image: a", "image: a, securityContext: {runAsUser: 1337}")


@pytest.mark.parametrize(("text", "words", "code"), [
    (pod(), [], 0), (SHARING, ["--fail-on", "bypass:foreign"], 1), (SHARING, [], 4), (pod(annotations="sidecar.istio.io/x: a"), [], 0),
    (pod(annotations="sidecar.istio.io/x: a"), ["--strict"], 1), ("kind: Pod\napiVersion: v1\n a: b", [], 1), ("a: b", [], 0), ("a: b", ["--require-pods"], 1),
    (pod(), ["--assert", "outbound ipv4 tcp not by proxy not to pod is captured"], 0), (pod(), ["--assert", "tcp is captured"], 4),
    (pod().replace('labels: {sidecar.istio.io/inject: "true"}, ', ""), [], 4),
    (pod().replace('labels: {sidecar.istio.io/inject: "true"}, ', ""), ["--assume", "injected"], 0),
])  # fmt: skip
def test_exit_codes_are_those_of_the_other_gates(run, here, text, words, code):
    here(pod=text)
    assert run(["netinit", "check", "pod.yaml", *words]).code == code


def test_what_several_pods_have_is_said_once_after_the_summary(run, here):
    here(pods="---".join([pod(f"p{number}", EXCLUDED) for number in range(9)]))
    done = run(["netinit", "check", "pods.yaml"])
    assert done.out.splitlines()[0] == "✘ 9 pods: 9 findings to act on"
    assert done.out.count("NI212") == 1
    assert 'in 9 pods: Pod "shop/p0", Pod "shop/p1", Pod "shop/p2", Pod "shop/p3", Pod "shop/p4" and 4 more' in done.out


def test_programs_get_every_finding_with_its_pod(run, here):
    here(pods=f"{pod('a', EXCLUDED)}---{pod('b', EXCLUDED)}", netinit=FAMILIES)
    tree = json.loads(run(["netinit", "check", "pods.yaml", "--json"]).out)
    assert [(one["code"], one["pod"]) for one in tree["findings"]] == [("NI212", 'Pod "shop/a"'), ("NI212", 'Pod "shop/b"')]
    done = run(["netinit", "check", "pods.yaml", "--format", "github"])
    assert (done.code, done.out.count("title=NI212")) == (4, 2)
    run(["netinit", "check", "pods.yaml", "--baseline", "b.yaml", "--write-baseline"])
    found = json.loads(run(["netinit", "check", "pods.yaml", "--baseline", "b.yaml", "--format", "sarif"]).out)
    assert all(one["suppressions"] for one in found["runs"][0]["results"])


def test_the_library_checks_files_and_objects(here):
    here(pods=pod(annotations=EXCLUDED))
    assert netinit.check("pods.yaml").exit_code == 4
    assert netinit.check("pods.yaml", accepted={"NI212": "TLS"}).exit_code == 0
    bare = yaml.safe_load(pod().replace('labels: {sidecar.istio.io/inject: "true"}, ', ""))
    assert (netinit.check(bare).exit_code, netinit.check(bare, assume="injected").exit_code) == (4, 0)
    assert netinit.explain(pod=bare, assume="injected", to="10.0.0.1:80").verdict == "captured"
    assert not netinit.lint(pod=bare, assume="injected").issues
    with pytest.raises(netinit.NetinitError, match="assume: 'maybe' is not one of injected, cni, none"):
        netinit.lint(pod=bare, assume="maybe")


def test_pods_with_the_same_options_are_computed_once(here, monkeypatch):
    from netinit.questions import rule_sources
    from netinit.questions.audit import report
    from netinit.questions.lint import report as lint_report

    counted = []
    for module, name in ((rule_sources, "plan"), (report, "audit"), (lint_report, "lint")):
        real = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *args, _real=real, _name=name, **more: counted.append(_name) or _real(*args, **more))
    here(pods="---".join([*[pod(f"p{number}") for number in range(20)], *[pod(f"q{number}", EXCLUDED) for number in range(20)]]))
    assert len(netinit.check("pods.yaml", settings=here(s=FAMILIES) / "s.yaml").pods) == 40
    assert [counted.count(name) for name in ("plan", "audit", "lint")] == [2, 2, 2]


def test_files_are_named_as_other_programs_name_them(run, here):
    """`./web.yaml` is no name that GitHub finds in a change."""
    (here(web=pod(annotations=EXCLUDED)) / "deep").mkdir()
    here(**{"deep/other": pod("other", EXCLUDED)})
    for folder in (".", "./", "././"):
        out = run(["netinit", "check", folder, "--format", "github"]).out
        assert [f"file={name}," in out for name in ("web.yaml", "deep/other.yaml")] == [True, True], out
    assert "file=deep/other.yaml," in run(["netinit", "check", "./deep", "--format", "github"]).out
    assert f"file={here()}/web.yaml," in run(["netinit", "check", str(here()), "--format", "github"]).out


def test_what_several_pods_have_has_no_place_of_one_of_them(run, here):
    here(pods="---".join([pod("one", "sidecar.istio.io/injekt: a"), pod("two", "sidecar.istio.io/injekt: a")]))
    (line,) = [line for line in run(["netinit", "lint", "pods.yaml"]).out.splitlines() if "NI106" in line]
    assert line.startswith("  warning NI106: ")


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("/etc/hostname"), os.mkfifo], ids=["link", "fifo"])
def test_a_file_that_is_not_read_says_so_once_and_what_to_do_here(run, here, make):
    make(here(web=pod()) / "odd.yaml")
    done = run(["netinit", "check", "."])
    (line,) = [line for line in done.out.splitlines() if "NI110" in line]
    assert (done.code, line.count("cannot be read"), " -f" in line) == (1, 1, False), line


def test_a_finding_names_its_container_once(run, here):
    here(web=SHARING)
    found = [line for line in run(["netinit", "lint", "web.yaml"]).out.splitlines() if "NI017" in line]
    assert found
    assert all(line.count("app") == 1 for line in found), found


def test_the_ports_of_a_proxy_with_another_name_are_its_own(run, here):
    """Of an init container that somebody wrote by hand, with an Envoy that declares where its health is asked."""
    here(web="""
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  initContainers:
  - name: istio-init
    args: [-u, "1337", -i, "*", -b, "*", -d, "15021", -e, "0", --dual-stack]
    securityContext: {runAsUser: 0, capabilities: {add: [NET_ADMIN, NET_RAW]}}
  containers:
  - {name: web, image: w}
  - {name: envoy, image: e, securityContext: {runAsUser: USER}, ports: [{containerPort: 15021}]}
""".replace("USER", "1337"))
    assert run(["netinit", "check", "web.yaml"]).code == 0
    here(web=(here() / "web.yaml").read_text().replace("runAsUser: 1337", "runAsUser: 1000"))
    assert "NI213" in run(["netinit", "check", "web.yaml"]).out
