"""What is read of a namespace without programs: names of legacy tables."""

from __future__ import annotations

import posix

import pytest

from netinit.base.net import IPV4, IPV6
from netinit.kernel import detect


@pytest.fixture
def names(tmp_path, monkeypatch):
    monkeypatch.setattr(detect, "_TABLE_NAMES", {IPV4: str(tmp_path / "names"), IPV6: str(tmp_path)})
    return tmp_path / "names"


def test_legacy_tables_are_those_that_the_kernel_names(names):
    assert detect.legacy_tables(IPV4) == ()  # no such file: no module of legacy tables
    names.write_text("")
    assert detect.legacy_tables(IPV4) == ()
    names.write_text("nat\nfilter\n")
    assert detect.legacy_tables(IPV4) == ("nat", "filter")


def test_legacy_tables_whose_names_cannot_be_read_are_not_known(names, monkeypatch):
    assert detect.legacy_tables(IPV6) is None  # a folder
    names.write_text("nat\n")

    def refuse(path, flags):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(posix, "open", refuse)
    assert detect.legacy_tables(IPV4) is None
