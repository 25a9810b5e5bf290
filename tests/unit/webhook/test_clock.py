"""The clock of the webhook's machine jumps: a certificate is not valid any more, or not yet, and reviews are answered all the same."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time

import pytest

from netinit.webhook.certificates import make_pair
from webhook_server import ROOT, Server, make_pod

YEAR = 365 * 86400
LIFETIME = 3600  # of the certificate that a server starts with


@pytest.fixture
def shift(tmp_path):
    """Sets the seconds that the server's clock is off by."""
    path = tmp_path / "shift"

    def jump(seconds):
        path.with_suffix(".new").write_text(str(seconds))
        path.with_suffix(".new").rename(path)

    jump(0)
    return jump


@pytest.fixture
def server(tmp_path, shift):
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed: apt-get install gcc libc6-dev")
    library = tmp_path / "clock.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", library, ROOT / "tests" / "clock.c"], check=True)
    environ = {"LD_PRELOAD": str(library), "CLOCK_SHIFT": str(tmp_path / "shift")}
    with Server(tmp_path, environ=environ, in_full=True) as made:
        yield made


def is_ready(server):
    code, text = server.monitor("/readyz")
    assert (code == 200) is ("[-]certificate" not in text), text
    return code == 200


def test_a_certificate_that_a_jump_makes_expire_takes_the_replica_out_until_the_clock_or_the_file_is_right(server, shift):
    with contextlib.closing(server.connect()) as old:
        shift(YEAR)
        server.until(lambda: not is_ready(server), "the expired certificate is seen")
        assert server.review(make_pod(), connection=old)["allowed"], "who is connected is answered"
        assert server.review(make_pod())["allowed"], "and so is who comes: the clock of the API server may be right"
        shift(0)
        server.until(lambda: is_ready(server), "the clock is set right")

        shift(YEAR)
        server.until(lambda: not is_ready(server), "the expired certificate is seen again")
        server.write_certificate(make_pair(("localhost",), now=time.time() + YEAR, seconds=LIFETIME))
        server.until(lambda: is_ready(server), "a certificate of that time is served")
        assert server.review(make_pod(), connection=old)["allowed"]


def test_a_certificate_that_is_not_valid_yet_is_refused_and_taken_when_its_time_comes(server, shift):
    ahead = make_pair(("localhost",), now=time.time() + 2 * LIFETIME, seconds=LIFETIME)
    server.write_certificate(ahead)
    server.until(lambda: "is not valid yet; " in server.log.read_text(), "it is told")
    assert is_ready(server)
    assert server.review(make_pod())["allowed"], "the previous one is served"
    shift(2 * LIFETIME)
    server.until(lambda: "serving certificate" in server.log.read_text().partition("is not valid yet")[2], "its time has come")
    assert is_ready(server)


@pytest.mark.parametrize("seconds", [YEAR, -YEAR])
def test_reviews_under_way_when_the_clock_jumps_are_answered(server, shift, seconds):
    with contextlib.closing(server.connect()) as connection:
        for number in range(20):
            shift(seconds if number % 2 else 0)
            assert server.review(make_pod(), connection=connection)["allowed"]
