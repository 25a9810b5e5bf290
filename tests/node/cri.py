"""A runtime as a kubelet uses it: its CRI, spoken without a client's library, and an image that does nothing but wait.

The few messages that are needed are written by hand (k8s.io/cri-api, runtime/v1): a field is its number and its bytes. A
process of its own speaks to the socket (`python cri.py SOCKET METHOD`), since gRPC's threads and the tests' forks do not go
together.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import subprocess
import sys
import tarfile
from pathlib import Path

PAUSE = "int pause(void);\nint main(void)\n{\n    for (;;)\n        pause();\n}\n"
IMAGE = "netinit.test/pause:1"
CONDITIONS = (b"RuntimeReady", b"NetworkReady")
OF_CONTAINER = 1  # NamespaceMode: each container has its own


def field(number, value):
    """A field of a message: a number, or a text, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(value):
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def read_fields(data):
    """The fields of a message as pairs of number and value."""
    at, found = 0, []

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    while at < len(data):
        key = number()
        value = number()
        if key & 7 == 2:
            at += value
            found.append((key >> 3, data[at - value : at]))
        else:
            found.append((key >> 3, value))
    return found


class CriError(Exception):
    """What the runtime refuses, in its words."""


class Cri:
    """The runtime's service on a socket."""

    def __init__(self, socket):
        self.socket = socket

    def call(self, method, request):
        command = [sys.executable, __file__, self.socket, method]
        done = subprocess.run(command, input=request, capture_output=True, check=False, timeout=120)
        if done.returncode:
            raise CriError(done.stderr.decode())
        return done.stdout

    @staticmethod
    def sandbox(name, namespace="shop", uid="", attempt=0, users=None):
        """The configuration of a sandbox, as a kubelet makes it; `users` (`hostUsers: false`): the node's first of 65,536 users that the pod has."""
        mapping = field(1, users or 0) + field(3, 65536)  # LinuxPodSandboxConfig: its own user namespace, users and groups alike
        own_users = field(5, field(2, mapping) + field(3, mapping)) if users else b""
        linux = field(2, field(1, field(2, OF_CONTAINER) + own_users))
        metadata = field(1, name) + field(2, uid or f"uid-{namespace}-{name}") + field(3, namespace) + field(4, attempt)
        return field(1, metadata) + field(2, name) + field(8, linux)

    def run_sandbox(self, name, **more):
        """The sandbox's id. CriError with the plugin's message where it cannot be made."""
        answer = self.call("RunPodSandbox", field(1, self.sandbox(name, **more)))
        return dict(read_fields(answer))[1].decode()

    def status(self, sandbox):
        """What the runtime says of a sandbox: its process, its addresses."""
        answer = self.call("PodSandboxStatus", field(1, sandbox) + field(2, 1))
        info = [dict(read_fields(value)) for number, value in read_fields(answer) if number == 2]
        return json.loads(next(one[2] for one in info if one[1] == b"info"))

    def stop_sandbox(self, sandbox):
        self.call("StopPodSandbox", field(1, sandbox))
        self.call("RemovePodSandbox", field(1, sandbox))

    def ready(self):
        """Why the runtime or its network is not ready; empty where both are. A kubelet asks for these two conditions alone."""
        answer = self.call("Status", b"")
        conditions = [dict(read_fields(value)) for _, value in read_fields(dict(read_fields(answer))[1])]
        return "; ".join(f"{one.get(1)} {one.get(4)}" for one in conditions if one.get(1) in CONDITIONS and not one.get(2))


def make_image(folder):
    """An archive of an image whose one file waits for ever."""
    return archive_image(Path(folder) / "pause.tar", IMAGE, {"pause": compile_static(folder, "pause", PAUSE)})


def compile_static(folder, name, source):
    """A program that needs no library."""
    path = Path(folder) / name
    path.with_suffix(".c").write_text(source)
    subprocess.run(["gcc", "-static", "-O2", "-o", path, path.with_suffix(".c")], check=True)
    return path


def archive_image(path, name, files):
    """An archive, as `docker save` writes it, of an image with these files (path in it -> path here), the first its entry point."""
    layer = path.with_suffix(".layer")
    with tarfile.open(layer, mode="w", dereference=True) as archive:
        for inside, outside in files.items():
            archive.add(outside, inside)
    with layer.open("rb") as data:
        digest = hashlib.file_digest(data, "sha256").hexdigest()
    config = {"architecture": platform.machine().replace("x86_64", "amd64").replace("aarch64", "arm64"), "os": "linux", "history": [{}],
              "config": {"Entrypoint": [f"/{next(iter(files))}"]}, "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]}}  # fmt: skip
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(path, "w") as archive:
        archive.add(layer, "layer.tar")
        for inside, tree in (("config.json", config), ("manifest.json", manifest)):
            content = json.dumps(tree).encode()
            info = tarfile.TarInfo(inside)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    layer.unlink()
    return path


def main():
    import grpc

    _, socket, method = sys.argv
    channel = grpc.insecure_channel(f"unix://{socket}")
    try:
        answer = channel.unary_unary(f"/runtime.v1.RuntimeService/{method}")(sys.stdin.buffer.read(), timeout=100)
    except grpc.RpcError as error:
        sys.exit(error.details())
    sys.stdout.buffer.write(answer)


if __name__ == "__main__":
    main()
