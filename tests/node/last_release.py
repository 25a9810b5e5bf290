"""The images of the last release, as its registry has them: archives of a folder that NETINIT_OLD_IMAGES names."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import subprocess
import tarfile
from pathlib import Path

import pytest

NAMES = ("netinit", "netinit-node", "netinit-webhook")
PLUGIN = "usr/lib/netinit/netinit-cni"  # in the agent's image
CHART = "usr/lib/netinit/netinit/data/chart"  # in the webhook's image, which prints the release's manifests


def wants(obstacle):
    """Whether the upgrade cannot be tested here; where the last release is named, as in CI, that is an error and no reason to skip."""
    if obstacle and os.environ.get("NETINIT_OLD_IMAGES"):
        raise pytest.UsageError(f"NETINIT_OLD_IMAGES asks for the upgrade's tests, which cannot run: {obstacle}")
    return obstacle is not None


def find_obstacle():
    """Why there is no last release here, or nothing."""
    named = os.environ.get("NETINIT_OLD_IMAGES")
    if not named:
        return f"NETINIT_OLD_IMAGES names no folder with the last release's images: {', '.join(f'{name}.tar' for name in NAMES)} (docker save)"
    missing = [f"{name}.tar" for name in NAMES if not (Path(named) / f"{name}.tar").is_file()]
    return f"NETINIT_OLD_IMAGES={named} has no {' and no '.join(missing)}" if missing else None


def load_images(runtime, names=NAMES):
    """Give images of the last release and of this one to the runtime; return their full names: {"old": {"netinit": …}, "new": …}."""
    folders = {"old": Path(os.environ["NETINIT_OLD_IMAGES"]), "new": Path(os.environ["NETINIT_NODE_IMAGES"])}
    return {age: {name: load_image(runtime, folder / f"{name}.tar") for name in names} for age, folder in folders.items()}


def load_image(runtime, archive):
    """Give an archive of `docker save` or `podman save` to the runtime; return the name that the image has in it."""
    runtime.ctr("-n", "k8s.io", "images", "import", archive)
    with tarfile.open(archive) as opened, opened.extractfile("manifest.json") as manifest:
        (image,) = json.load(manifest)
    return image["RepoTags"][0]


@contextlib.contextmanager
def mounted(runtime, image, folder):
    """The image's files in a folder. Nothing of the machine is mounted below it: whoever deletes the folder deletes the copy alone."""
    folder.mkdir(parents=True)
    runtime.ctr("-n", "k8s.io", "images", "mount", "--snapshotter", "native", "--rw", image, folder)
    try:
        yield folder
    finally:
        runtime.ctr("-n", "k8s.io", "images", "unmount", "--snapshotter", "native", "--rm", folder)


def start_in(root, path, *words):
    """A command that starts a program of an image's files in a network namespace; /proc is mounted for this program alone."""
    null = root / "dev" / "null"
    if not null.exists():
        os.mknod(null, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    script = 'mount -t proc proc "$1/proc"; exec chroot "$@"'
    return ["nsenter", f"--net={path}", "unshare", "--mount", "--propagation", "private", "sh", "-euc", script, "sh", str(root), *words]


def copy_out(runtime, image, inside, folder):
    """Copy a file or folder out of an image; return its path."""
    with mounted(runtime, image, folder / "image") as root:
        subprocess.run(["cp", "--recursive", root / inside, folder], check=True)
    return folder / Path(inside).name
