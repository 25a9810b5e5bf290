"""What the node's agent recorded of the pods that it programmed, as commands read it."""

from __future__ import annotations

import os
from pathlib import Path

from netinit.library.rule_reading import find_known
from netinit.node.pod_records import Attachments
from netinit.node.settings import SOCKET
from netinit.options import Options
from netinit.pods.attachments import ATTACHMENTS, USUAL_FOLDER, Attachment

OWN = "/proc/self/ns/net"


def find_recorded(**place):
    return find_known(Options(**place))[0]


def test_the_folder_is_beside_the_socket_that_an_agent_has_by_default():
    assert Path(SOCKET).parent / ATTACHMENTS == USUAL_FOLDER


def test_the_options_of_a_namespace_are_those_of_its_own_record(tmp_path, monkeypatch):
    monkeypatch.setattr("netinit.pods.attachments.USUAL_FOLDER", tmp_path)
    status, records = Path(OWN).stat(), Attachments(tmp_path)
    common = {"interface": "eth0", "namespace": "shop", "name": "web", "uid": "u", "netns": "/var/run/netns/gone", "environ": {}}
    records.put(Attachment(container="a", device=status.st_dev, inode=status.st_ino + 1, argv=("-b", "81"), **common))
    assert find_recorded(netns=OWN) is None
    records.put(Attachment(container="b", device=status.st_dev, inode=status.st_ino, argv=("-b", "80"), **common))
    (tmp_path / "0.json").write_text("[")
    found = Options.from_argv(["-b", "80"])
    assert (find_recorded(netns=OWN), find_recorded(pid=os.getpid())) == (found, found)
    assert find_recorded() is None
    assert find_recorded(netns=str(tmp_path / "none")) is None


def test_a_record_with_options_that_this_version_lacks_has_none(tmp_path, monkeypatch):
    monkeypatch.setattr("netinit.pods.attachments.USUAL_FOLDER", tmp_path)
    status = Path(OWN).stat()
    Attachments(tmp_path).put(Attachment(
        container="a", interface="eth0", namespace="shop", name="web", uid="u", netns="", device=status.st_dev, inode=status.st_ino,
        argv=("--of-another-version",), environ={},
    ))  # fmt: skip
    assert find_recorded(netns=OWN) is None


def test_the_folder_is_made_with_those_above_it_and_is_root_s_alone(tmp_path):
    folder = tmp_path / "run" / "attachments"
    one = Attachment(container="a", interface="eth0", namespace="shop", name="web", uid="u", netns="/var/run/netns/web", environ={}, device=1, inode=2, argv=())
    Attachments(folder).put(one)
    assert [*Attachments(folder)] == [one]
    assert folder.stat().st_mode & 0o777 == 0o700
