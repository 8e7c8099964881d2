"""Five thousand nodes and seventy thousand pods: how much the page is, how soon it is there, and how it goes on while nodes change."""

from pathlib import Path

from browser import REVISION, Browser, equal, live, of_speed, until_true
from cluster import CHANGING, PATIENCE, Running, dump, still, until

# What the browser may take, with the page drawn a hundred times.
HEAP_BYTES = 150e6
PAINTED = "performance.getEntriesByName('first-contentful-paint')"
# Frames from now on, in milliseconds; longer than two of a screen that shows sixty a second is slow.
FRAMES = """(() => {
  window.frames_of_page = []; let last = performance.now();
  const tick = (now) => { frames_of_page.push(now - last); last = now; requestAnimationFrame(tick); };
  requestAnimationFrame(tick);
})()"""


def heap(browser, page):
    """What is left after what nobody needs is gone."""
    session = browser.context.new_cdp_session(page)
    session.send("HeapProfiler.enable")
    session.send("HeapProfiler.collectGarbage")
    return session.send("Runtime.getHeapUsage")["usedSize"]


@of_speed
def five_thousand_nodes(playwright):
    """The first paint, the best of three, and the sizes."""
    with still(dump(5000, pods_per_node=18)) as running, Browser(playwright) as browser:
        view = running.wait("the first view", lambda view: view["header"]["nodes"] == 5000, seconds=120)
        assert view["header"]["pods"] >= 70_000, view["header"]["pods"]
        size, paints = len(running.get("/api/view")), []
        for _ in range(3):
            page = browser.context.new_page()
            page.goto(running.url)
            until(page, f"{PAINTED}.length > 0")
            paints.append(page.evaluate(f"{PAINTED}[0].startTime"))
        equal(page.locator("#map .area").count() > 0, True, "groups are drawn")
        html = len(page.content())
        print(f"    first paints {', '.join(f'{paint:.0f}' for paint in paints)} ms, view {size} bytes, page {html} bytes", flush=True)
        assert size <= 1 << 20 and html < 1.5e6, (size, html)
        frame = page.locator("#map").bounding_box()
        page.mouse.click(frame["x"] + 500, frame["y"] + 200)
        until_true(page, "the box that is clicked is opened", lambda: "node=" in page.url)
        until(page, "document.querySelector('#map .ring') !== null && document.querySelector('#detail .summary') !== null")
        equal(browser.complaints, [], "what the browser complains of")
        assert min(paints) <= 2000 * PATIENCE, paints


@of_speed
def a_hundred_changes_of_five_thousand_nodes(playwright):
    """Fifty nodes change twice a second: all of it is shown, frames stay short, the better of two times, and nothing piles up."""
    assert Path(CHANGING).exists(), f"there is no {CHANGING}: cargo build --release -p spokeshave-web --example changing"
    shares = []
    with Running(program=CHANGING) as running, Browser(playwright) as browser:
        page = browser.page
        page.goto(running.url)
        live(page)
        page.evaluate(FRAMES)
        while not shares or (len(shares) < 2 and shares[-1] > 0.05):
            page.evaluate("frames_of_page.length = 0")
            begun = page.evaluate(REVISION)
            until(page, f"{REVISION} >= {begun} + 100", timeout=120000)
            frames = page.evaluate("[...frames_of_page]")
            shares.append(sum(1 for time in frames if time > 33.4) / len(frames))
            print(f"    frames over 33 ms {shares[-1]:.1%} of {len(frames)}, the longest {max(frames):.0f} ms", flush=True)
        used = heap(browser, page)
        print(f"    heap {used / 1e6:.0f} MB")
        assert used < HEAP_BYTES, used
        equal(browser.complaints, [], "what the browser complains of")
        assert min(shares) <= 0.05, shares
