"""A real browser for tests: headless Chromium, driven over the WebDriver protocol with the standard library alone."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_ARGUMENTS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip
_PATIENCE = 60  # seconds for any answer: the machine may be busy


def find_browser() -> tuple[str, str] | None:
    """Chromium and its driver, or None."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None


class Browser:
    """One window."""

    def __init__(self, address: str, session: str) -> None:
        self._base = f"{address}/session/{session}"

    def open(self, place: Path | str) -> None:
        """Load a file or an address and wait until it has loaded; the logs begin with it."""
        for kind in ("browser", "performance"):
            self.log(kind)
        _call("POST", f"{self._base}/url", {"url": place.resolve().as_uri() if isinstance(place, Path) else place})

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a script in the page; ``return`` gives its value."""
        return _call("POST", f"{self._base}/execute/sync", {"script": script, "args": list(arguments)})

    def devtools(self, command: str, **parameters: Any) -> Any:
        """A command of the DevTools protocol."""
        return _call("POST", f"{self._base}/goog/cdp/execute", {"cmd": command, "params": parameters})

    def log(self, kind: str) -> list[dict[str, Any]]:
        """What the browser logged since the last call: "browser" (the console) or "performance" (the network)."""
        return _call("POST", f"{self._base}/se/log", {"type": kind})

    def requests(self) -> list[str]:
        """Addresses that were asked for since the last call; data: addresses, which are in the page, do not count."""
        messages = [json.loads(entry["message"])["message"] for entry in self.log("performance")]
        sent = [
            m["params"] for m in messages if m["method"] in ("Network.requestWillBeSent", "Network.webSocketCreated")
        ]
        addresses = [s["request"]["url"] if "request" in s else s["url"] for s in sent]
        return [a for a in addresses if not a.startswith(("data:", "blob:"))]

    def resize(self, width: int, height: int) -> None:
        """The size of the page; smaller than any window may be, if need be."""
        self.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    def prefer(self, media: str = "", **features: str) -> None:
        """Media of the page, such as ``prefers_color_scheme="dark"`` or "print"."""
        pairs = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.devtools("Emulation.setEmulatedMedia", media=media, features=pairs)

    def press(self, key: str) -> None:
        """Press and release a key, such as "ArrowLeft", on what has the focus."""
        codes = {"ArrowLeft": 37, "ArrowRight": 39, "Tab": 9, " ": 32}
        for kind in ("keyDown", "keyUp"):
            self.devtools("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key])

    def screenshot(self, path: Path) -> Path:
        """The whole page as a PNG."""
        height = self.run("return document.documentElement.scrollHeight")
        width = self.run("return innerWidth")
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        made = self.devtools("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(made["data"]))
        return path

    def wait(self, script: str, seconds: float = 10) -> None:
        """Until a script returns something true."""
        end = time.monotonic() + seconds
        while not self.run(script):
            if time.monotonic() > end:
                raise TimeoutError(f"still false after {seconds} s: {script}")
            time.sleep(0.05)


@contextlib.contextmanager
def open_browser() -> Iterator[Browser]:
    """A browser with a new, empty profile; it and its driver are gone afterwards."""
    found = find_browser()
    assert found, "no chromium or no chromedriver"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile, _driver(found[1]) as address:
        options = {"binary": found[0], "args": [*_ARGUMENTS, f"--user-data-dir={profile}"]}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
        made = _call("POST", f"{address}/session", {"capabilities": {"alwaysMatch": wanted}})
        try:
            browser = Browser(address, made["sessionId"])
            browser.open("about:blank")  # away from the page for new tabs, which loads scripts of its own
            yield browser
        finally:
            _call("DELETE", f"{address}/session/{made['sessionId']}")


@contextlib.contextmanager
def _driver(program: str) -> Iterator[str]:
    """A running driver, by its address."""
    command = [program, "--port=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            # It says which free port it took; nothing more is written to the pipe that could fill it.
            found = next(
                (m for line in process.stdout if (m := re.search(r"started successfully on port (\d+)", line))), None
            )
            assert found, "chromedriver did not start"
            yield f"http://127.0.0.1:{found[1]}"
        finally:
            process.terminate()


def _call(method: str, address: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"}, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # the driver is on this machine
    try:
        with opener.open(request, timeout=_PATIENCE) as answer:
            return json.loads(answer.read())["value"]
    except urllib.error.HTTPError as error:
        with error:
            raise RuntimeError(f"{address}: {error.read().decode()[:2000]}") from None
