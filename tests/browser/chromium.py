"""A headless Chromium, driven by its DevTools protocol through two pipes: no port, and no library."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import queue
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest

SITE = os.environ.get("NETINIT_SITE", "")
PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), "")
FLAGS = (
    "--headless=new", "--no-sandbox", "--remote-debugging-pipe", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions", "--mute-audio",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)  # fmt: skip
PATIENCE = 120  # seconds for anything: a machine may be busy, and what takes longer hangs
NEEDS = [
    pytest.mark.skipif(not SITE, reason="NETINIT_SITE names no folder with the documentation: make playground-test"),
    pytest.mark.skipif(not PROGRAM, reason="there is no chromium; as root: apt-get install chromium"),
]
KEYS = {"Tab": 9, "Enter": 13, "ArrowDown": 40, "Space": 32}


class Chromium:
    """The browser, with one page. `requests`: the address of each request of the page and its workers; `workers`: the address of
    each that runs, by session."""

    def __init__(self, profile: Path) -> None:
        (given, self._write), (self._read, taken) = os.pipe(), os.pipe()
        there, back = (fcntl.fcntl(one, fcntl.F_DUPFD, 10) for one in (given, taken))  # neither is 3 or 4
        line = ("bash", "-c", f'exec "$0" "$@" 3<&{there} 4>&{back}', PROGRAM, *FLAGS, f"--user-data-dir={profile}")
        self._process = subprocess.Popen(line, pass_fds=(there, back), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for one in (given, taken, there, back):
            os.close(one)
        self._number = 0
        self._answers: queue.Queue[dict] = queue.Queue()
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.workers: dict[str, str] = {}
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        target = self.call("Target.createTarget", session="", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", session="", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network"):
            self.call(f"{domain}.enable")
        self.call("Target.setAutoAttach", autoAttach=True, waitForDebuggerOnStart=True, flatten=True)

    def close(self) -> None:
        os.close(self._write)
        self._process.terminate()
        self._process.wait(PATIENCE)
        self._listener.join(PATIENCE)
        os.close(self._read)

    def _listen(self) -> None:
        rest = b""
        while piece := os.read(self._read, 1 << 16):
            *messages, rest = (rest + piece).split(b"\0")
            for message in messages:
                self._take(json.loads(message))

    def _take(self, message: dict) -> None:
        params = message.get("params", {})
        if "id" in message:
            if message["id"] > 0:
                self._answers.put(message)
        elif message["method"] == "Target.attachedToTarget" and params["targetInfo"]["type"] == "worker":
            self.workers[params["sessionId"]] = params["targetInfo"]["url"]
            for method in ("Network.enable", "Runtime.enable", "Runtime.runIfWaitingForDebugger"):
                self._send({"id": -1, "method": method, "sessionId": params["sessionId"]})
        elif message["method"] == "Target.detachedFromTarget":
            self.workers.pop(params["sessionId"], None)
        elif message["method"] == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif message["method"] == "Runtime.exceptionThrown":
            self.errors.append(str(params["exceptionDetails"]))

    def _send(self, message: dict) -> None:
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]

    def call(self, method: str, *, session: str | None = None, **params: object) -> dict:
        """Call a method of the page, or of the browser for the session ""."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        target = self._session if session is None else session
        self._send({**message, "sessionId": target} if target else message)
        answer = self._answers.get(timeout=PATIENCE)
        assert answer["id"] == self._number
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def ask(self, script: str) -> object:
        """The value of an expression on the page; a promise is awaited."""
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, script: str) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + PATIENCE
        while not self.ask(f"Boolean({script})"):
            assert time.monotonic() < end, f"never true: {script}; errors: {self.errors}"
            time.sleep(0.05)

    def runs(self, script: str) -> bool:
        """Whether a worker of this script runs."""
        return any(address.endswith(script) for address in [*self.workers.values()])

    def wait_for_end(self, script: str) -> None:
        """Wait until the browser has ended each worker of this script."""
        end = time.monotonic() + PATIENCE
        while self.runs(script):
            assert time.monotonic() < end, f"{script} still runs"
            time.sleep(0.05)

    def open(self, address: str, *, width: int = 1280, dark: bool = False) -> None:
        self.call("Page.navigate", url="about:blank")  # a new page, also where the address differs only after `#`
        self.wait("location.href === 'about:blank'")
        self.call("Storage.clearDataForOrigin", origin="/".join(address.split("/")[:3]), storageTypes="local_storage")  # the theme chosen
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url=address)
        self.wait(f"location.href.startsWith({json.dumps(address.partition('#')[0])}) && document.readyState === 'complete'")

    def press(self, key: str, *, shift: bool = False) -> None:
        common = {"key": " " if key == "Space" else key, "code": key, "windowsVirtualKeyCode": KEYS[key], "modifiers": 8 if shift else 0}
        text = {"Enter": "\r", "Space": " "}.get(key)
        self.call("Input.dispatchKeyEvent", type="keyDown", **common, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def picture(self, path: Path) -> None:
        """A picture of the whole page."""
        shown = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shown["data"]))
