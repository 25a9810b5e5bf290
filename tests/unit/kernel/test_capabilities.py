"""What this process may do, by what the kernel tells of it."""

from __future__ import annotations

from netinit.kernel import capabilities

WHOLE = "Name:\tx\nCapInh:\t{inh:016x}\nCapPrm:\t{prm:016x}\nCapEff:\t{eff:016x}\nCapBnd:\t{bnd:016x}\nCapAmb:\t{amb:016x}\nNoNewPrivs:\t1\n"


def status(*, inh=0, prm=0, eff=0, bnd=0, amb=0):
    return WHOLE.format(inh=inh, prm=prm, eff=eff, bnd=bnd, amb=amb)


def test_whether_privileges_may_be_gained_is_read(monkeypatch):
    monkeypatch.setattr(capabilities, "read_text", lambda _: status())
    assert not capabilities.may_gain()
    monkeypatch.setattr(capabilities, "read_text", lambda _: status().replace("NoNewPrivs:\t1", "NoNewPrivs:\t0"))
    assert capabilities.may_gain()
