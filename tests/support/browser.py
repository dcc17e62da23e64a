"""A real browser for tests: headless Chromium of the system, driven by selenium."""

import base64
import contextlib
import json
import shutil
from importlib.util import find_spec
from pathlib import Path

with contextlib.suppress(ImportError):  # `find_browser` says so
    from selenium import webdriver
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.wait import WebDriverWait

_ARGUMENTS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip
_PATIENCE = 60  # seconds for any answer: the machine may be busy


def find_browser():
    """Chromium and its driver, or None, also if there is no selenium to drive them."""
    if find_spec("selenium") is None:
        return None
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None


class Browser:
    """One window."""

    def __init__(self, driver):
        self.driver = driver
        self.run = driver.execute_script  # a script in the page; ``return`` gives its value

    def open(self, place):
        """Load a file or an address and wait until it has loaded; the logs begin with it."""
        for kind in ("browser", "performance"):
            self.log(kind)
        self.driver.get(place.resolve().as_uri() if isinstance(place, Path) else place)

    def log(self, kind):
        """What the browser logged since the last call: "browser" (the console) or "performance" (the network)."""
        return self.driver.get_log(kind)

    def requests(self):
        """Addresses that were asked for since the last call; data: addresses, which are in the page, do not count."""
        messages = [json.loads(entry["message"])["message"] for entry in self.log("performance")]
        sent = [
            m["params"] for m in messages if m["method"] in ("Network.requestWillBeSent", "Network.webSocketCreated")
        ]
        addresses = [s["request"]["url"] if "request" in s else s["url"] for s in sent]
        return [a for a in addresses if not a.startswith(("data:", "blob:"))]

    def assert_calm(self):
        """Since the last call: no complaint in the console, no request but for files, and no name that was run."""
        assert [entry for entry in self.log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
        assert all(address.startswith("file:") for address in self.requests())
        assert self.run("return window.hacked") is None

    def resize(self, width, height):
        """The size of the page; smaller than any window may be, if need be."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def prefer(self, media="", **features):
        """Media of the page, such as ``prefers_color_scheme="dark"`` or "print"."""
        pairs = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": pairs})

    def press(self, key):
        """Press and release a key, such as "ArrowLeft", on what has the focus."""
        keys = {"ArrowLeft": Keys.ARROW_LEFT, "ArrowRight": Keys.ARROW_RIGHT}
        ActionChains(self.driver).send_keys(keys[key]).perform()

    def screenshot(self, path):
        """The whole page as a PNG."""
        width, height = self.run("return [innerWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        wanted = {"format": "png", "captureBeyondViewport": True, "clip": clip}
        path.write_bytes(base64.b64decode(self.driver.execute_cdp_cmd("Page.captureScreenshot", wanted)["data"]))
        return path

    def wait(self, script, seconds=10):
        """Until a script returns something true."""
        WebDriverWait(self.driver, seconds, 0.05).until(lambda _: self.run(script), f"still false: {script}")


@contextlib.contextmanager
def open_browser():
    """A browser with a new, empty profile; it and its driver are gone afterwards."""
    found = find_browser()
    assert found, "no chromium or no chromedriver"
    options = webdriver.ChromeOptions()
    options.binary_location = found[0]
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    for argument in _ARGUMENTS:
        options.add_argument(argument)
    # With the path of the driver, selenium neither looks for another one nor loads one.
    with webdriver.Chrome(options, webdriver.ChromeService(found[1])) as driver:
        driver.command_executor.client_config.timeout = _PATIENCE
        browser = Browser(driver)
        browser.open("about:blank")  # away from the page for new tabs, which loads scripts of its own
        yield browser
