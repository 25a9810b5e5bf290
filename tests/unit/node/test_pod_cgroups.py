"""Which cgroup is a pod's, by the kubelet's names."""

from __future__ import annotations

import pytest

from netinit.node.pod_records import find_cgroups

UID = "0f3c9a5e-7d52-4f0e-9c43-1b2d3e4f5a6b"
UNDER = UID.replace("-", "_")
PATHS = (
    f"kubepods/pod{UID}",
    f"kubepods/besteffort/pod{UID}",
    f"kubepods.slice/kubepods-pod{UNDER}.slice",
    f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDER}.slice",
    f"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod{UNDER}.slice",
    f"kubelet/kubepods/burstable/pod{UID}",
)


@pytest.mark.parametrize("path", PATHS)
def test_the_cgroup_of_a_pod_is_found_with_each_driver(tmp_path, path):
    (tmp_path / path / "cri-containerd-1.scope").mkdir(parents=True)
    (tmp_path / "system.slice" / f"pod{UID}").mkdir(parents=True)
    (tmp_path / path).with_name("podffff").mkdir()
    assert find_cgroups([UID, "another"], str(tmp_path)) == {UID: f"/{path}"}


@pytest.mark.parametrize("name", [f"pod{UID}x", f"x{UID}", f"pod{UID}.scope", "pod", f"podx-{UID}"])
def test_another_name_is_no_pods(tmp_path, name):
    (tmp_path / "kubepods" / name).mkdir(parents=True)
    assert find_cgroups([UID], str(tmp_path)) == {}


def test_links_and_a_missing_folder_lead_nowhere(tmp_path):
    (tmp_path / "kubepods").mkdir()
    (tmp_path / "kubepods" / f"pod{UID}").symlink_to(tmp_path)
    assert find_cgroups([UID], str(tmp_path)) == {}
    assert find_cgroups([UID], str(tmp_path / "none")) == {}
