"""What the agent is asked: values with a grammar of their own."""

from __future__ import annotations

import pytest

from netinit.base.errors import OptionError
from netinit.node.settings import AgentSettings, split_taint


@pytest.mark.parametrize(
    ("text", "parts"),
    [("k", ("k", "", "")), ("a.io/k=v", ("a.io/k", "v", "")), ("k=v:NoExecute", ("k", "v", "NoExecute")), ("k:NoSchedule", ("k", "", "NoSchedule")), ("k=:NoSchedule", ("k", "", "NoSchedule"))],
)  # fmt: skip
def test_a_taint_is_written_as_kubectl_does(text, parts):
    assert split_taint(text) == parts
    assert AgentSettings(node="n", taint=text).taint == text


@pytest.mark.parametrize("text", ["=v", ":NoSchedule", "k:", "k:Never", "k=v:NoSchedule:x"])
def test_what_is_no_taint_is_told(text):
    with pytest.raises(OptionError, match=r"--startupTaint: .* is not KEY"):
        AgentSettings.from_argv(["--nodeName", "n", "--startupTaint", text])


@pytest.mark.parametrize("backend", ["auto", "nftables", "iptables-nft"])
def test_native_nftables_contradicts_every_other_backend(backend):
    words = ["--nodeName", "n", "--native-nftables", "--backend", backend]
    if backend != "iptables-nft":
        assert AgentSettings.from_argv(words).base.wanted_backend == "nftables"
        return
    with pytest.raises(OptionError, match="--native-nftables: contradicts --backend"):
        AgentSettings.from_argv(words)
