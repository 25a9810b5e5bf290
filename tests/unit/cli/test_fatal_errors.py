"""The message of a fatal error that Kubernetes shows of a container."""

from __future__ import annotations

from netinit.cli.fatal_errors import write_termination_log


def test_the_termination_message_replaces_what_was_there(tmp_path):
    path = tmp_path / "termination-log"
    path.write_text("an earlier, longer message than the one that comes now")
    assert write_termination_log("no NET_ADMIN\nrun as \x1b[31mroot\udcff", str(path))
    assert path.read_text() == "no NET_ADMIN\nrun as \\x1b[31mroot\\xff"


def test_the_termination_message_fits_into_what_the_kubelet_keeps(tmp_path):
    path = tmp_path / "termination-log"
    path.touch()
    assert write_termination_log("a" + "é" * 4000, str(path))
    assert len(path.read_bytes()) == 4095  # whole characters only
    assert path.read_text("utf-8").startswith("aéé")


def test_a_link_in_place_of_the_termination_log_is_not_followed(tmp_path):
    (tmp_path / "target").write_text("mine")
    (tmp_path / "termination-log").symlink_to("target")
    assert not write_termination_log("no", str(tmp_path / "termination-log"))
    assert (tmp_path / "target").read_text() == "mine"


def test_without_a_termination_log_none_is_made(tmp_path):
    path = tmp_path / "termination-log"
    assert not write_termination_log("message", str(path))
    assert not path.exists()
    assert not write_termination_log("message", str(tmp_path))
