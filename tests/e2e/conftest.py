"""The image, built once for all tests of this folder; `make image-test` installs what that takes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import Engine, Image, find_obstacle


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("netinit")
    group.addoption("--require-image", action="store_true", help="fail, not skip, where no image can be built")
    group.addoption("--image-store", type=Path, help="keep the storage in this folder, and use what is there from last time")


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """podman with storage of its own, in which Debian's base is."""
    reason = find_obstacle()
    if reason is not None:
        if request.config.getoption("--require-image"):
            pytest.fail(f"--require-image: {reason}", pytrace=False)
        pytest.skip(f"no image: {reason}")
    made = Engine(request.config.getoption("--image-store"))
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
def files(engine: Engine, image: Image, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the image's files."""
    return engine.unpack(image, tmp_path_factory.mktemp("image"))
