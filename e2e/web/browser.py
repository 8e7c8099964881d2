"""The browser of the checks, and what several of them ask of a page. Importing a module of checks enters them here."""

import re
import time
from pathlib import Path

from cluster import CHROMIUM, PATIENCE, until

CHECKS = {}
# Those of the checks that judge how much there is, or how quick it is.
OF_SPEED = []
SHOP = str(Path(__file__).parent / "shop.yaml")

LIVE = "document.querySelector('#live')?.textContent === 'live'"
REVISION = "Number(document.documentElement.dataset.revision)"
# The nodes that are shown are those that were typed for: keys that are pressed before are about others.
MATCHED = "document.querySelector('#nodes header .note').textContent.includes('match')"
# What has the focus is to be seen: a box by its own outline. Where nothing has it, it is lost.
SEEN = """(() => {
  const at = document.activeElement;
  if (at === document.body) return false;
  if (getComputedStyle(at).outlineStyle !== 'none') return true;
  const room = at.matches('a.node') && at.querySelector('.room');
  return !!room && getComputedStyle(room).strokeWidth === '4px';
})()"""
ON_A_BOX = "document.activeElement.closest('a.node') !== null"
# No machine has a network: no name is found, and what is asked for is on this one.
ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]


def check(function):
    CHECKS[function.__name__] = function
    return function


def of_speed(function):
    OF_SPEED.append(function.__name__)
    return check(function)


def equal(left, right, what):
    assert left == right, f"{what}: {left!r} is not {right!r}"


def stays(page, told):
    """What the page tells of itself holds for ten seconds."""
    for _ in range(20):
        page.wait_for_timeout(500)
        assert page.evaluate(told), page.locator("#live").inner_text()


class Browser:
    """A browser whose every request and complaint is written down, whatever page makes it."""

    def __init__(self, playwright, **options):
        # Containers have little of /dev/shm.
        self.browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        self.context = self.browser.new_context(viewport={"width": 1440, "height": 1000}, **options)
        self.context.set_default_timeout(30000 * PATIENCE)
        self.requests, self.complaints, self.workers = [], [], []
        self.context.on("request", lambda request: self.requests.append((request.method, request.url)))
        self.context.on("console", lambda message: self.complaints.append(message.text) if message.type in ("error", "warning") else None)
        self.context.on("weberror", lambda error: self.complaints.append(str(error.error)))
        self.context.on("serviceworker", lambda worker: self.workers.append(worker.url))
        self.page = self.context.new_page()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.browser.close()


def elsewhere(browser, running):
    """Requests of a browser that are none for a page of this server."""
    return [(method, url) for method, url in browser.requests if method != "GET" or not url.startswith(running.origin)]


def live(page, timeout=20000):
    until(page, LIVE, timeout)


def until_true(page, what, holds, timeout=20000):
    """Waits until something holds that is asked here and not in the page."""
    for _ in range(int(timeout * PATIENCE) // 50):
        if holds():
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"not within {timeout * PATIENCE:g} ms: {what}; at {page.url}")


def later(page, revisions=2):
    """Waits until the page has been drawn anew so often."""
    shown = page.evaluate(REVISION)
    until(page, f"{REVISION} >= {shown} + {revisions}", timeout=60000)


def press_seen(page, *keys):
    """Presses keys; after each the focus is to be seen."""
    for key in keys:
        page.keyboard.press(key)
        until(page, SEEN)


def resident_kib(process):
    return next(int(line.split()[1]) for line in Path(f"/proc/{process.pid}/status").read_text().splitlines() if line.startswith("VmRSS"))


# What is shown, with the revision that it is of.
SHOWN = """() => ({
  revision: document.documentElement.dataset.revision,
  parts: Object.fromEntries(['whatif', 'time', 'boxes', 'detail', 'pending', 'budgets', 'nodes'].map((id) => [id, document.getElementById(id).outerHTML])),
  numbers: document.querySelector('#top .numbers').textContent,
})"""
# The parts that are not the same in another page, whatever the order of their attributes. What has the focus, and what is open, is each reader's own.
DIFFERENT = """(shown) => {
  const plain = (node) => {
    const copy = node.cloneNode(true);
    for (const one of [copy, ...copy.querySelectorAll('*')]) for (const name of ['tabindex', 'open', 'hidden']) one.removeAttribute(name);
    copy.normalize();
    return copy;
  };
  if (document.documentElement.dataset.revision !== shown.revision) return null;
  const bad = Object.entries(shown.parts).filter(([id, html]) => {
    const other = new DOMParser().parseFromString(html, 'text/html').getElementById(id);
    return !plain(document.getElementById(id)).isEqualNode(plain(other));
  }).map(([id]) => id);
  return document.querySelector('#top .numbers').textContent === shown.numbers ? bad : ['top', ...bad];
}"""


def same_as_fresh(browser, page):
    """What a page shows is what it shows to whoever comes now, at the same revision."""
    fresh = browser.context.new_page()
    fresh.goto(page.url)
    live(fresh)
    for _ in range(int(200 * PATIENCE)):
        different = fresh.evaluate(DIFFERENT, page.evaluate(SHOWN))
        if different is not None:
            break
        fresh.wait_for_timeout(100)
    fresh.close()
    equal(different, [], "parts that differ from those of a page that is loaded now (none: never of the same revision)")


class Stopwatch:
    """Wall-clock seconds, to be printed."""

    def __init__(self):
        self.begun = time.monotonic()

    def seconds(self):
        return time.monotonic() - self.begun


def number(text):
    """The first number of a text."""
    return float(re.search(r"-?[\d.]+", text)[0])
