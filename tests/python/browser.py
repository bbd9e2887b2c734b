"""Headless Chromium, and a page of it on which nothing may go wrong."""

import contextlib
import os
import shutil
from urllib.parse import urlsplit

from conftest import ROOT, skip

UNPACKED = ROOT / "tests/browser/unpacked/chromium"

# Long enough for the first figures of a job that has just begun.
PATIENCE_MS = 60_000


def program():
    """Starts Chromium as `make browser` unpacked it, or the one that XPU_TEST_CHROMIUM names."""
    named = os.environ.get("XPU_TEST_CHROMIUM")
    found = shutil.which(named) if named else str(UNPACKED) if UNPACKED.exists() else None
    if found is None:
        skip("no Chromium: `make browser` installs one, or XPU_TEST_CHROMIUM names one", beyond_ci="Chromium")
    return found


@contextlib.contextmanager
def chromium():
    path = program()
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        skip("no Playwright: `make browser` installs it", beyond_ci="Chromium")
    with sync_playwright() as driver:
        # Chromium's sandbox does not work as root or in containers. The tests load only their own pages.
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"], chromium_sandbox=False)
        yield browser
        browser.close()


class Visit:
    """One page of a browser. It keeps every request, and every message of the console."""

    def __init__(self, browser, scheme="dark", size=(1440, 900)):
        self.page = browser.new_page(color_scheme=scheme, viewport={"width": size[0], "height": size[1]})
        self.page.set_default_timeout(PATIENCE_MS)
        self.said, self.asked = [], []
        self.page.on("console", lambda message: self.hear(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.said.append(f"thrown: {error}"))
        self.page.on("request", lambda request: self.asked.append(request.url))

    def hear(self, message):
        # Only `colours` reads canvases back; the page itself does not.
        if "willReadFrequently" not in message:
            self.said.append(message)

    def open(self, address):
        """Fails with the reason if the page's script does not load."""
        self.address = address
        self.page.goto(address)
        thrown = [said for said in self.said if said.startswith("thrown: ")]
        assert not thrown, thrown
        return self

    def press(self, *keys):
        for key in keys:
            self.page.keyboard.press(key)

    def shows(self, text, where="body"):
        """Waits for a text, and returns the element that has it."""
        found = self.page.locator(where).filter(has_text=text).first
        found.wait_for(state="visible")
        return found

    def gives(self, expression):
        return self.page.evaluate(expression)

    def colours(self, nth=0):
        """The number of pixels of each colour in a heatmap, the most frequent colour first."""
        return (
            self.page.locator("canvas")
            .nth(nth)
            .evaluate(
                """canvas => {
              const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
              const counts = new Map();
              for (let at = 0; at < data.length; at += 4) {
                if (data[at + 3] < 255) continue;
                const colour = "#" + [0, 1, 2].map(n => data[at + n].toString(16).padStart(2, "0")).join("");
                counts.set(colour, (counts.get(colour) ?? 0) + 1);
              }
              return Object.fromEntries([...counts].sort((a, b) => b[1] - a[1]).slice(0, 40));
            }"""
            )
        )

    def is_clean(self):
        """Checks that the console has no message, and that the page sent no request to another host."""
        assert not self.said, self.said
        own = urlsplit(self.address).netloc
        others = [url for url in self.asked if urlsplit(url).netloc != own and not url.startswith("blob:")]
        assert not others, others
