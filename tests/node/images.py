"""The images that the kubelet's test runs, built into the folder that the command line names: `images.py FOLDER`.

They are built before the test's namespaces are made, which lead to no archive of packages. The folder keeps what building
takes for the next time.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "e2e"), str(Path(__file__).parents[2])]
from engine import Engine  # noqa: E402 - found by the path above

IMAGES = {"netinit": [], "netinit-node": ["--target=node"], "netinit-webhook": ["--target=webhook"]}


def main():
    (folder,) = map(Path, sys.argv[1:])
    folder.mkdir(parents=True, exist_ok=True)
    engine = Engine(folder)
    try:
        engine.make_base()
        for name, flags in IMAGES.items():
            engine.build(f"localhost/{name}", more=flags)
            archive = folder / f"{name}.tar"
            archive.unlink(missing_ok=True)
            engine.podman("save", "--quiet", "--format", "docker-archive", "--output", str(archive), f"localhost/{name}")
    finally:
        engine.close()


if __name__ == "__main__":
    main()
