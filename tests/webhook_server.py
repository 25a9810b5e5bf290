"""A real `netinit webhook serve` on loopback, with TLS, for tests and measurements: started, asked, told to end."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import http.client
import itertools
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from netinit.inject import apply_patch
from netinit.webhook.certificates import make_pair
from prefork import SECONDS, WEBHOOK, Running

ROOT = Path(__file__).parent.parent
CONFIG = {
    "policy": "enabled",
    "templates": {
        "sidecar": "metadata: {annotations: {release: '{{ .Values.release }}'}}\nspec:\n  containers:\n"
        "  - {name: istio-proxy, image: proxy, env: [{name: MESH, value: '{{ .MeshConfig.TrustDomain }}'}]}\n"
    },
}


# A thousand for each worker, below those of connections, of which one could take a port before its server starts anew.
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 12
PORTS = itertools.cycle([20_000 + 1000 * WORKER + (os.getpid() + number) % 1000 for number in range(1000)])  # beside a second run's


TAKEN = deque()  # descriptors of names that say to other processes which ports were given here last
MAX_TAKEN = 64  # of which most servers have ended


def free_port():
    """A port that nobody listens on, and that nobody else is given soon, in a second run of the tests neither."""
    while True:
        name, port = socket.socket(socket.AF_UNIX), next(PORTS)
        with name, socket.socket() as probe, contextlib.suppress(OSError):
            name.bind(f"\0netinit-tests-port-{port}")
            probe.bind(("127.0.0.1", port))
            TAKEN.append(name.detach())
            if len(TAKEN) > MAX_TAKEN:
                os.close(TAKEN.popleft())
            return port


def make_pod(name="web", *, annotations=None, labels=None, **spec):
    metadata = {"name": name, "namespace": "shop", "labels": labels or {"app": name}}
    if annotations:
        metadata["annotations"] = annotations
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [{"name": "app", "image": "app:1"}], **spec},
    }


def make_review(pod, *, version="v1", uid="c0ffee", **more):
    request = {
        "uid": uid,
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": "shop",
        "operation": "CREATE",
        "object": pod,
        **more,
    }
    return {"kind": "AdmissionReview", "apiVersion": f"admission.k8s.io/{version}", "request": request}


def patched(pod, response):
    """The pod after the patch of a review's response."""
    if "patch" not in response:
        return pod
    return apply_patch(pod, json.loads(base64.b64decode(response["patch"])))


def make_client_pair():
    """A certificate for a client, its own authority, and its key."""
    now = dt.datetime.now(dt.UTC)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "kube-apiserver")])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + dt.timedelta(1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return made.public_bytes(pem).decode(), key.private_bytes(pem, form, serialization.NoEncryption()).decode()


class Server:
    """The process, by `with`: it is ready when the block begins."""

    host = name = "localhost"

    def __init__(
        self, folder, *words, config=CONFIG, values='{"release": "first"}', environ=None, wait=True, in_full=False
    ):
        self.folder = Path(folder)
        self.port, self.monitoring = free_port(), free_port()
        self.pair = make_pair(("localhost",), now=time.time(), seconds=3600)
        self.write_certificate(self.pair)
        self.config = self.folder / "config"
        self.config.mkdir(exist_ok=True)
        (self.config / "values").write_text(values)
        (self.config / "config").write_text(config if isinstance(config, str) else json.dumps(config))
        self.log = self.folder / "log"
        own = ["--injectConfig", self.config] if "--injectConfigMapName" not in words else []
        tls = ["--tlsCertFile", self.folder / "tls.crt", "--tlsKeyFile", self.folder / "tls.key"]
        tls = [] if "--certificateSecret" in words else tls
        ports = [
            "--address",
            "127.0.0.1",
            "--port",
            self.port,
            "--monitoringPort",
            self.monitoring,
        ]
        delay = [] if "--shutdownDelay" in words else ["--shutdownDelay", "0s"]
        self.command = [
            "webhook",
            "serve",
            *map(str, [*own, *tls, *ports, *delay, *words]),
        ]
        self.environ = {**os.environ, **(environ or {})}
        self.in_full = in_full  # started as the image starts it, not forked (prefork.py)
        self.wrap = list  # of the whole command line: what it is started by
        self.wait = wait

    def write_certificate(self, pair):
        for name, text in (("tls.crt", pair.certificate), ("tls.key", pair.key), ("ca.crt", pair.authority)):
            (self.folder / f".{name}").write_text(text)
            (self.folder / f".{name}").rename(self.folder / name)

    def __enter__(self):
        self.output = self.log.open("w")
        if self.in_full:
            command = self.wrap([sys.executable, "-m", "netinit", *self.command])
            self.process = subprocess.Popen(command, stdout=self.output, stderr=subprocess.STDOUT, env=self.environ, cwd=ROOT)
        else:
            self.process = Running(self.command, WEBHOOK, log=self.output.fileno(), environ=self.environ, folder=ROOT)
        if self.wait:
            self.until(lambda: self.get("/readyz")[0] == 200, "it is ready")
        return self

    def __exit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(SECONDS)
        finally:
            self.process.kill()
            self.output.close()

    def until(self, holds, what, seconds=SECONDS):
        """Waits for something that must come to be; the deadline is there for a hanging test alone."""
        end = time.monotonic() + seconds
        last = None
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise AssertionError(f"the server ended with {self.process.returncode}:\n{self.log.read_text()}")
            try:
                if holds():
                    return
            except (OSError, http.client.HTTPException) as error:
                last = error
            time.sleep(0.02)
        raise AssertionError(f"not within {seconds} s: {what} ({last})\n{self.log.read_text()[-4000:]}")

    @property
    def context(self):
        return ssl.create_default_context(cadata=self.pair.authority)

    def connect(self, context=None):
        return http.client.HTTPSConnection("localhost", self.port, timeout=SECONDS, context=context or self.context)

    def get(self, path):
        with contextlib.closing(self.connect()) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def monitor(self, path):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.monitoring, timeout=SECONDS)) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def post(self, body, path="/inject", headers=None, connection=None):
        """Status and body of an answer."""
        own = connection or self.connect()
        try:
            own.request("POST", path, body, {"Content-Type": "application/json"} if headers is None else headers)
            answer = own.getresponse()
            return answer.status, answer.read()
        finally:
            if connection is None:
                own.close()

    def review(self, pod, path="/inject", connection=None, **more):
        """The response to a review of the pod."""
        status, body = self.post(json.dumps(make_review(pod, **more)), path, connection=connection)
        assert status == 200, (status, body)
        return json.loads(body)["response"]
