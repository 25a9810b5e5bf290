"""What `kubectl netinit report` shows of the answers about real pods: all that netinit says, nothing that somebody else named."""

from __future__ import annotations

import re

import pytest

from netinit.kubectl.redaction import redact
from programming import REDIRECT, needs, run_tool

ASKED = (("verify", *REDIRECT), ("audit", "--live", "--full"), ("draw", "--live", "--table", "all"), ("doctor", *REDIRECT), ("explain", "--live", "--all", "--to", "10.7.7.7:80"))
TABLE = """table inet zqtable {
  set zqset {
    type ipv4_addr; comment "zqnote of the set"
    elements = { 10.7.7.7 }
  }
  chain zqjump { ip daddr 10.7.7.9 meta mark 0x0a070707 drop; }
  chain zqchain {
    type filter hook output priority 5
    ip daddr @zqset @nh,128,32 0x0a070707 ether saddr 02:42:0a:07:07:07 counter drop comment "zqnote to the proxy"
    oifname "zqdev0" jump zqjump
  }
}"""


@pytest.fixture
def programmed(pod):
    needs("iptables-nft")
    assert run_tool(pod, "apply", *REDIRECT, "--backend", "iptables-nft").returncode == 0
    return pod


def answers(pod):
    for words in ASKED:
        done = run_tool(pod, *words)
        assert done.stdout, done
        yield done.stdout + done.stderr


def test_of_a_pod_without_foreign_rules_nothing_but_addresses_is_replaced(programmed):
    for text in answers(programmed):
        redacted = redact(text, {})
        assert not re.findall(r"\b(?:NAME|TEXT|BYTES|NUMBER)-\d+|of \d+ characters", redacted), redacted


def test_of_foreign_rules_no_name_comment_or_address_stays(programmed, tmp_path):
    (tmp_path / "table").write_text(TABLE)
    programmed.run(["nft", "-f", str(tmp_path / "table")], check=True)
    programmed.run(["iptables-nft", "-w", "-t", "nat", "-N", "ZQLEGACY"], check=True)
    rule = ["-p", "tcp", "--dport", "80", "-m", "comment", "--comment", "let the zqbank pass", "-j", "ZQLEGACY"]
    programmed.run(["iptables-nft", "-w", "-t", "nat", "-I", "OUTPUT", *rule], check=True)
    programmed.run(["iptables-nft", "-w", "-t", "nat", "-A", "ZQLEGACY", "-d", "10.7.7.7", "-o", "zqdev0+", "-j", "ACCEPT"], check=True)
    shown = list(answers(programmed))
    assert sum("zq" in text or "ZQ" in text for text in shown) > 2, shown
    for text in shown:
        assert not re.findall("zq|10[.]7[.]7|0a0?70707|0a.07.07.07|let the", redact(text, {}), re.IGNORECASE), redact(text, {})
