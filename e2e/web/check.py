"""The page in a genuine browser: what needs one to be seen. Needs Chromium and the package `playwright` (its own browser is not used).

    check.py [NAME…]              the checks of these names, by default all
    check.py steady               those that a busy machine does not fail
    check.py speed                the others

Waits only bound failures; PATIENCE (1) multiplies them.
"""

import io
import os
import re
import sys
import time
import traceback
import urllib.error
from pathlib import Path

from cluster import CHROMIUM, PATIENCE, Running, dump, golden, still, until
from playwright.sync_api import sync_playwright

CHECKS = {}
# Those of the checks that judge how much there is, or how quick it is.
OF_SPEED = []


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
    """A browser whose every request and complaint is written down."""

    def __init__(self, playwright, **options):
        # Containers have little of /dev/shm.
        self.browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        self.context = self.browser.new_context(viewport={"width": 1440, "height": 1000}, **options)
        self.context.set_default_timeout(30000 * PATIENCE)
        self.page = self.context.new_page()
        self.requests, self.complaints = [], []
        self.page.on("request", lambda request: self.requests.append((request.method, request.url)))
        self.page.on("console", lambda message: self.complaints.append(message.text) if message.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.browser.close()


@check
def whole_without_javascript(playwright):
    with still(dump(100)) as running, Browser(playwright, java_script_enabled=False) as browser:
        page = browser.page
        page.goto(running.url)
        view = running.view()
        rows = page.locator("#nodes tbody tr").count()
        equal(rows, len(view["nodes"]["name"]), "rows of the table")
        size = len(running.get("/").encode())
        assert size <= 200_000, size
        cost = page.locator("#top dd").first.inner_text()
        assert f"{view['header']['price']:.2f}" in cost, cost
        page.locator("#nodes tbody a").nth(3).click()
        name = view["nodes"]["name"][3]
        equal(page.locator("#detail h2").inner_text(), f"Node {name}", "the chosen node")
        page.fill("#find", "ml-")
        page.press("#find", "Enter")
        found = page.locator("#nodes tbody th").all_inner_texts()
        assert found and all(name.startswith("ml-") for name in found), found
        page.locator("#boxes nav a", has_text="zone").click()
        assert page.locator("#map .area").count() >= 4
        page.locator("#time nav a", has_text="7d").click()
        page.locator("#budgets h3 a", has_text="ml").click()
        assert "range=7d" in page.url and "pool=ml" in page.url and "find=ml-" in page.url, page.url
        equal(page.locator("#time [aria-current]").inner_text(), "7d", "the span of the time axis")


@check
def nothing_from_elsewhere(playwright):
    with Running("up", "--demo", "--speed", "20") as running, Browser(playwright) as browser:
        page = browser.page
        answer = page.goto(running.url)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy, policy
        running.wait("nodes", lambda view: view["header"]["nodes"] > 2)
        until(page, "document.querySelectorAll('#nodes tbody tr').length > 2", timeout=20000)
        for key in ["g", "s", "?", "Escape", "b", "ArrowRight", "Enter", "w", "Escape", "t", "p", "z", "[", ".", "/"]:
            page.keyboard.press(key)
            page.wait_for_timeout(100)
        equal(browser.complaints, [], "what the browser complains of")
        others = [url for method, url in browser.requests if method != "GET" or not url.startswith(running.origin)]
        equal(others, [], "requests to elsewhere, or that could change something")


@check
def follows_the_cluster(playwright):
    """A pod is protected, and its node's detail says so; without the annotation it does not."""
    with Running("up", "-f", str(Path(__file__).parent / "shop.yaml"), "--speed", "20") as running, Browser(playwright) as browser:
        page = browser.page
        page.goto(running.url)
        running.wait("pods of the web", lambda view: view["header"]["pods"] > 40 and view["header"]["pending"] == 0)

        def protect(value):
            running.api("PATCH", path, {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": value}}})

        pods = running.api("GET", "/api/v1/namespaces/shop/pods?labelSelector=app%3Dweb")["items"]
        for pod in (pod for pod in pods if pod["spec"].get("nodeName")):
            name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
            path = f"/api/v1/namespaces/shop/pods/{name}"
            try:
                protect("true")
                break
            except urllib.error.HTTPError as error:
                # Consolidation moves pods meanwhile; another will do.
                equal(error.code, 404, "the answer to the annotation")
        page.goto(f"{running.origin}/?node={node}")
        told = f"[...document.querySelectorAll('#detail .pods li')].some((one) => one.textContent.includes('{name}') && one.textContent.includes('do-not-disrupt'))"
        until(page, told)
        until(page, "document.querySelector('#live').textContent === 'live'")
        protect(None)
        until(page, f"!{told}")


@check
def toggles_survive_a_reload(playwright):
    with still(dump(100)) as running, Browser(playwright) as browser:
        page = browser.page
        view = running.view()
        node = next(name for name in view["nodes"]["name"] if '"without":"PodDoNotDisrupt' in running.get(f"/api/node/{name}"))
        page.goto(running.url)
        page.goto(f"{running.origin}/?node={node}")
        page.locator("#detail [data-toggle]").first.click()
        page.wait_for_selector("#whatif:not([hidden])")
        told = page.locator("#whatif").inner_text()
        assert "Nothing is changed in the cluster" in told and "→" in told, told
        assert "without=PodDoNotDisrupt" in page.url, page.url
        page.reload()
        equal(page.locator("#whatif").inner_text(), told, "the answer after a reload")
        equal(page.locator("#detail [aria-checked=true]").count(), 1, "switches that are on")
        page.keyboard.press("w")
        page.wait_for_selector("#whatif", state="hidden")
        equal(running.view()["header"], view["header"], "the cluster")


# The nodes that are shown are those that were typed for: keys that are pressed before are about others.
MATCHED = "document.querySelector('#nodes header .note').textContent.includes('match')"
# What has the focus is to be seen: a box by its own outline.
SEEN = """(() => {
  const at = document.activeElement;
  if (at === document.body || getComputedStyle(at).outlineStyle !== 'none') return true;
  const room = at.matches('a.node') && at.querySelector('.room');
  return room && getComputedStyle(room).strokeWidth === '4px';
})()"""
ON_A_BOX = "document.activeElement.closest('a.node') !== null"


@check
def keyboard_alone(playwright):
    """Finds a node, opens it, reads, toggles, goes back, opens a pending pod, sorts the table; the focus is always to be seen."""
    with still(dump(100)) as running, Browser(playwright) as browser:
        page, press = browser.page, browser.page.keyboard.press
        page.goto(running.url)
        press("/")
        page.keyboard.type("do-not-disrupt")
        page.wait_for_url(re.compile("find="))
        until(page, MATCHED)
        until(page, "document.activeElement.id === 'find'")
        press("Escape")
        press("b")
        until(page, ON_A_BOX)
        until(page, SEEN)
        before = page.evaluate("document.activeElement.dataset.node")
        press("ArrowRight")
        until(page, f"document.activeElement.dataset.node !== '{before}'")
        until(page, ON_A_BOX)
        press("Enter")
        page.wait_for_selector("#detail [data-toggle]")
        until(page, "document.activeElement.id === 'detail'")
        press("w")
        page.wait_for_selector("#whatif:not([hidden])")
        press("w")
        page.wait_for_selector("#whatif", state="hidden")
        press("Escape")
        page.wait_for_selector("#detail .empty")
        press("p")
        until(page, "document.activeElement.closest('#pending') !== null")
        until(page, SEEN)
        press("Enter")
        page.wait_for_selector("#detail .summary")
        until(page, "document.activeElement.id === 'detail'")
        press("Escape")
        page.wait_for_selector("#detail .empty")
        press("z")
        page.wait_for_url(re.compile("range=6h"))
        until(page, "document.querySelector('#time [aria-current]').textContent === '6h'")
        press("t")
        until(page, "!!document.activeElement.dataset.row")
        for _ in range(12):
            if page.evaluate("document.activeElement.dataset.sort === 'cpu'"):
                break
            press("Shift+Tab")
        press("Enter")
        page.wait_for_selector("#nodes th[aria-sort=descending]")
        until(page, "document.activeElement.dataset.sort === 'cpu'")
        shares = [int(text.split()[0]) for text in page.locator("#nodes tbody td:nth-child(6)").all_inner_texts()]
        equal(shares, sorted(shares, reverse=True), "shares of cpu")
        for _ in range(12):
            press("Tab")
            until(page, SEEN)


@check
def a_drawing_that_comes_late_keeps_the_focus(playwright):
    """A box has the focus while a drawing without it is on its way: the focus stays among the boxes, and is to be seen."""
    held, released = [], []
    with still(dump(100)) as running, Browser(playwright) as browser:
        page, press = browser.page, browser.page.keyboard.press
        page.goto(running.url)
        page.route(re.compile(r"/\?find="), lambda route: route.continue_() if released else held.append(route))
        press("/")
        page.keyboard.type("do-not-disrupt")
        page.wait_for_url(re.compile("find="))
        press("Escape")
        press("b")
        until(page, ON_A_BOX)
        gone = page.evaluate("document.activeElement.dataset.node")
        released.append(True)
        for route in held:
            route.continue_()
        until(page, MATCHED)
        equal(page.locator(f"a.node[data-node='{gone}']").count(), 0, "boxes that were not typed for")
        until(page, ON_A_BOX)
        until(page, SEEN)
        # The next key goes on from there.
        press("Enter")
        page.wait_for_selector("#detail [data-toggle]")
        until(page, "document.activeElement.id === 'detail'")


# What both of the next share: colours as they are seen, over what lies beneath.
COLOURS = """
  const parse = (text) => { const part = text.startsWith('rgb') ? text.match(/[\\d.]+/g).map(Number) : null; return part && part[3] !== 0 ? part : null; };
  const light = (colour) => colour.slice(0, 3).map((v) => v / 255).map((v) => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const ratio = (one, other) => { const [a, b] = [light(one), light(other)]; return (Math.max(a, b) + .05) / (Math.min(a, b) + .05); };
  const ground = (one) => { for (; one; one = one.parentElement) { const found = parse(getComputedStyle(one).backgroundColor); if (found) return found; } return [255, 255, 255]; };
  const paint = (one, what, over) => {
    const style = getComputedStyle(one);
    const colour = parse(style[what]);
    const part = colour && (colour[3] ?? 1) * Number(style[what + 'Opacity']) * Number(style.opacity);
    return colour && over.map((v, i) => colour[i] * part + v * (1 - part));
  };
  // The colours that a part of a drawing lies on: those of the shapes before it, the last first to be seen.
  const beneath = (one) => {
    const svg = one.closest('svg'), own = one.getBoundingClientRect();
    let grounds = [ground(svg).slice(0, 3)];
    for (const shape of svg.querySelectorAll('rect, path, circle')) {
      if (shape === one || shape.closest('defs') || !(shape.compareDocumentPosition(one) & Node.DOCUMENT_POSITION_FOLLOWING)) continue;
      const rect = shape.getBoundingClientRect();
      const wide = Math.min(rect.right, own.right) - Math.max(rect.left, own.left), high = Math.min(rect.bottom, own.bottom) - Math.max(rect.top, own.top);
      if (wide < Math.min(2, own.width) || high < Math.min(2, own.height)) continue;
      const painted = grounds.map((under) => paint(shape, 'fill', under)).filter((colour) => colour);
      const isWhole = shape.tagName === 'rect' && wide >= own.width - 1 && high >= own.height - 1;
      if (painted.length) grounds = isWhole ? painted : [...grounds, ...painted];
    }
    return grounds;
  };
  const isShown = (one) => !one.closest('[hidden], defs, .hidden-text, .skip, dialog:not([open])');
  const told = (one, least) => [one.tagName, one.getAttribute('class'), one.closest('[id]')?.id, one.textContent.slice(0, 30), least.toFixed(2)];
"""
# Texts, in drawings and elsewhere.
CONTRAST = """() => {
  COLOURS
  const bad = [];
  for (const one of document.querySelectorAll('body *')) {
    if (!isShown(one) || one.tagName === 'title' || ![...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim())) continue;
    const of = (under) => one.closest('svg') ? paint(one, 'fill', under) : parse(getComputedStyle(one).color);
    const least = Math.min(...(one.closest('svg') ? beneath(one) : [ground(one)]).map((under) => ratio(of(under), under)));
    if (least < 4.5) bad.push(told(one, least));
  }
  return bad;
}""".replace("COLOURS", COLOURS)
# What a drawing says without words: its shapes, by what they are filled with or by their outline.
GRAPHICS = """() => {
  COLOURS
  const bad = [];
  for (const one of document.querySelectorAll('svg .room, #time .line, #time .waiting, #time rect.bar, #time .lid, .lane .closed')) {
    if (!isShown(one)) continue;
    const best = (under) => Math.max(...['fill', 'stroke'].map((what) => paint(one, what, under)).map((colour) => colour ? ratio(colour, under) : 1));
    const least = Math.min(...beneath(one).map(best));
    if (least < 3) bad.push(told(one, least));
  }
  return bad;
}""".replace("COLOURS", COLOURS)


def stands_out(page, scheme):
    equal(page.evaluate(CONTRAST), [], f"texts with a contrast below 4.5, {scheme}")
    equal(page.evaluate(GRAPHICS), [], f"graphics with a contrast below 3, {scheme}")


@check
def readable_in_every_scheme_and_width(playwright):
    with still(of_every_look(dump(60))) as running:
        for scheme in ["light", "dark"]:
            with Browser(playwright, color_scheme=scheme) as browser:
                page = browser.page
                page.goto(running.url)
                page.goto(f"{running.origin}/?node=default-00017&without=PodDoNotDisrupt:Pod/shop/web-00017-0")
                equal(page.locator("#detail [aria-checked=true]").count(), 1, "switches that are on")
                stands_out(page, scheme)
                for width in [320, 768, 1440]:
                    page.set_viewport_size({"width": width, "height": 900})
                    wide = page.evaluate("document.documentElement.scrollWidth")
                    assert wide <= width, f"{scheme}, {width}: scrolls to {wide}"
        with Browser(playwright, forced_colors="active", reduced_motion="reduce") as browser:
            page = browser.page
            page.goto(running.url)
            moving = page.evaluate("document.getAnimations().length + [...document.querySelectorAll('*')].filter((one) => parseFloat(getComputedStyle(one).transitionDuration) > 0).length")
            equal(moving, 0, "what moves although it should not")
        # Each verdict bears a pattern of its own, so that it can be told without colour.
        html = running.get("/")
        patterns = set(re.findall(r'class="pattern"[^>]*fill="url\(#(p-[a-z]+)\)"', html))
        assert patterns >= {"p-go", "p-leaving", "p-coming", "p-broken", "p-unmanaged"}, patterns


@check
def stale_is_said_and_it_comes_back(playwright):
    """The server is stopped for a while: the page says so, and goes on afterwards."""
    import signal

    with Running("up", "--demo", "--speed", "20") as running, Browser(playwright) as browser:
        page = browser.page
        page.goto(running.url)
        until(page, "document.querySelector('#live')?.textContent === 'live'", timeout=20000)
        os.kill(running.process.pid, signal.SIGSTOP)
        try:
            until(page, "document.querySelector('#live').textContent.startsWith('stale since')", timeout=15000)
        finally:
            os.kill(running.process.pid, signal.SIGCONT)
        until(page, "document.querySelector('#live').textContent === 'live'", timeout=20000)


@check
def a_page_whose_drawings_are_refused_is_not_live(playwright):
    """Its cookie is lost while its stream goes on: it says so, and not that it is live, until it is let in again."""
    told = "document.querySelector('#live').textContent === '401: open the printed address again'"
    with Running("up", "--demo", "--speed", "20") as running, Browser(playwright) as browser:
        page = browser.page
        page.goto(running.url)
        until(page, "document.querySelector('#live')?.textContent === 'live'", timeout=20000)
        browser.context.clear_cookies()
        until(page, told, timeout=20000)
        # Signs of life come every few seconds, and change nothing of that.
        stays(page, told)
        other = browser.context.new_page()
        other.goto(running.url)
        other.close()
        until(page, "document.querySelector('#live').textContent === 'live'", timeout=20000)


@check
def a_page_that_gets_no_answer_is_not_live(playwright):
    """Its stream goes on while what it asks for does not arrive: it says so until it is drawn anew."""
    live = "document.querySelector('#live')?.textContent === 'live'"
    told = "document.querySelector('#live').textContent === 'not drawn anew'"
    drawings = re.compile(r"/(\?.*)?$")
    with Running("up", "--demo", "--speed", "20") as running, Browser(playwright) as browser:
        page = browser.page
        page.goto(running.url)
        until(page, live, timeout=20000)
        page.route(drawings, lambda route: route.abort())
        until(page, told, timeout=20000)
        stays(page, told)
        page.unroute(drawings)
        until(page, live, timeout=20000)


@check
def slow_answers_are_shown(playwright):
    """Each answer takes longer than the next change: the page follows all the same, and asks for one at a time."""
    slow = """const quick = window.fetch; window.open_now = 0; window.open_most = 0;
      window.fetch = async (...all) => {
        open_most = Math.max(open_most, ++open_now);
        try { await new Promise((done) => setTimeout(done, 3000)); return await quick(...all); } finally { open_now -= 1; }
      };"""
    with Running("up", "--demo", "--speed", "20") as running, Browser(playwright) as browser:
        page = browser.page
        page.add_init_script(slow)
        page.goto(running.url)
        until(page, "document.querySelector('#live')?.textContent === 'live'")
        for _ in range(3):
            shown = page.evaluate("document.documentElement.dataset.revision")
            until(page, f"document.documentElement.dataset.revision !== '{shown}'", timeout=15000)
        equal(page.evaluate("open_most"), 1, "fetches of one page at the same time")


@of_speed
def five_thousand_nodes(playwright):
    with still(dump(5000, pods_per_node=13)) as running, Browser(playwright) as browser:
        page = browser.page
        running.wait("the first view", lambda view: view["header"]["nodes"] == 5000, seconds=120)
        size = len(running.get("/api/view"))
        page.goto(running.url)
        until(page, "performance.getEntriesByName('first-contentful-paint').length > 0")
        paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        equal(page.locator("#map .area").count() > 0, True, "groups are drawn")
        page.mouse.click(500, 400)
        heap = browser.context.new_cdp_session(page).send("Runtime.getHeapUsage")["usedSize"]
        # A whole drawing anew, in the middle of frames.
        frames = page.evaluate("""async () => {
          const times = []; let last = performance.now(); let on = true;
          const tick = (now) => { times.push(now - last); last = now; if (on) requestAnimationFrame(tick); };
          requestAnimationFrame(tick);
          for (let i = 0; i < 5; i++) { history.replaceState(null, '', i % 2 ? '/' : '/?group=zone'); dispatchEvent(new PopStateEvent('popstate')); await new Promise((done) => setTimeout(done, 2000)); }
          on = false; return times; }""")
        slow = sum(1 for time in frames if time > 33.4) / len(frames)
        print(f"    first paint {paint:.0f} ms, view {size} bytes, page {len(page.content())} bytes, heap {heap / 1e6:.0f} MB, frames over 33 ms {slow:.1%} of {len(frames)}")
        assert heap < 150e6 and size <= 1 << 20 and len(page.content()) < 1.5e6
        equal(browser.complaints, [], "what the browser complains of")


@check
def a_hostile_name_is_only_text(playwright):
    world = dump(20)
    for item in world["items"]:
        if item["kind"] == "Pod" and item["metadata"]["labels"]["app"] == "train-large":
            item["metadata"]["ownerReferences"][0]["name"] = "<img src=x onerror=alert(1)>'\"&"
    with still(world) as running, Browser(playwright) as browser:
        browser.page.goto(running.url)
        assert "<img src=x onerror" in browser.page.locator("#pending").inner_text()
        equal(browser.page.locator("img").count(), 0, "images")
        equal(browser.complaints, [], "what the browser complains of")


def resident_kib(process):
    return next(int(line.split()[1]) for line in Path(f"/proc/{process.pid}/status").read_text().splitlines() if line.startswith("VmRSS"))


@of_speed
def eight_tabs_are_all_live(playwright):
    """More pages than a browser opens connections to one server: all follow the cluster, also when the one that listens for them is closed."""
    live = "document.querySelector('#live').textContent === 'live'"
    with Running("up", "-f", str(Path(__file__).parent / "shop.yaml"), "--speed", "20") as running, Browser(playwright) as browser:
        running.wait("pods of the web", lambda view: view["header"]["pods"] > 40 and view["header"]["pending"] == 0)
        browser.page.goto(running.url)
        until(browser.page, live)
        before = resident_kib(running.process)
        pages = [browser.page] + [browser.context.new_page() for _ in range(7)]
        for page in pages[1:]:
            page.goto(running.origin)
        for page in pages:
            until(page, live)
        # Whoever listened for all is gone; the others say `stale` after five seconds in which they hear nothing.
        pages[0].close()
        pages[1].wait_for_timeout(7000)
        deployment = "/apis/apps/v1/namespaces/shop/deployments/web"
        replicas = running.api("GET", deployment)["spec"]["replicas"] + 3
        running.api("PATCH", deployment, {"spec": {"replicas": replicas}})
        shown = running.wait("three more", lambda view: running.api("GET", deployment)["status"].get("readyReplicas") == replicas)["revision"]
        for page in pages[1:]:
            until(page, f"Number(document.documentElement.dataset.revision) >= {shown} && {live}", timeout=20000)
        grown = (resident_kib(running.process) - before) / 1024
        print(f"    the server grew by {grown:.1f} MiB")
        assert grown < 16, grown
        equal(browser.complaints, [], "what the browser complains of")


@check
def a_page_that_is_held_up_blinds_no_other(playwright):
    """Whoever listens for all is busy with something else: the others listen for themselves until it is back."""
    live = "document.querySelector('#live').textContent === 'live'"
    with Running("up", "-f", str(Path(__file__).parent / "shop.yaml"), "--speed", "20") as running, Browser(playwright) as browser:
        first, second = browser.page, browser.context.new_page()
        first.goto(running.url)
        until(first, live)
        second.goto(running.origin)
        until(second, live)
        # Not waited for: the page is busy for half a minute.
        first.evaluate("setTimeout(() => { const end = Date.now() + 30000; while (Date.now() < end); }, 0)")
        deployment = "/apis/apps/v1/namespaces/shop/deployments/web"
        second.wait_for_timeout(7000)
        replicas = running.api("GET", deployment)["spec"]["replicas"] + 2
        running.api("PATCH", deployment, {"spec": {"replicas": replicas}})
        shown = running.wait("two more", lambda view: running.api("GET", deployment)["status"].get("readyReplicas") == replicas)["revision"]
        until(second, f"Number(document.documentElement.dataset.revision) >= {shown} && {live}", timeout=15000)
        # A page that comes now is not blind either.
        third = browser.context.new_page()
        third.goto(running.origin)
        until(third, live, timeout=15000)
        until(first, live, timeout=60000)


@check
def the_time_line_is_the_record(playwright):
    """A bar for each command of the ledger, and the sums that it shows are those of the Disruption objects."""
    with Running("up", "-f", str(Path(__file__).parent / "shop.yaml"), "--speed", "20") as running, Browser(playwright) as browser:
        page = browser.page
        running.wait("pods of the web", lambda view: view["header"]["pods"] > 40 and view["header"]["pending"] == 0)
        running.api("PATCH", "/apis/apps/v1/namespaces/shop/deployments/web", {"spec": {"replicas": 6}})
        done = ("Succeeded", "RolledBack")
        view = running.wait("commands that have ended", lambda view: len(view["commands"]) > 1 and all(one["phase"] in done for one in view["commands"]))
        page.goto(running.url)
        # The cluster goes on: until a look at both is of the same moment.
        for _ in range(int(60 * PATIENCE)):
            ledger = running.api("GET", "/apis/spokeshave.dev/v1alpha1/disruptions")["items"]
            bars, view = page.locator("#time rect.bar").count(), running.view()
            if bars == len(ledger) == len(view["commands"]) and all(one["phase"] in done for one in view["commands"]):
                break
            page.wait_for_timeout(500)
        equal(bars, len(ledger), "bars, and Disruption objects")
        ended = [one for one in ledger if one["status"]["phase"] == "Succeeded"]
        predicted = sum(float(one["spec"]["savings"]) for one in ended)
        realised = sum(float(one["status"]["realisedSavings"]) for one in ended)
        note = page.locator("#time .note").first.inner_text()
        for word, sum_of in [("saved", realised), ("predicted", predicted)]:
            told = re.search(rf"{word} \$([\d.]+)/h", note)
            # What was predicted is told where something else came of it.
            assert told or (word == "predicted" and round(predicted - realised, 6) == 0), note
            assert told is None or abs(float(told[1]) - sum_of) < 0.0051, (note, word, sum_of)
        titles = [text.lower() for text in page.locator("#time rect.bar title").all_text_contents()]
        for one in ledger:
            assert any(f"{one['spec']['reason'].lower()}," in title for title in titles), (one["spec"]["reason"], titles)
        for left, right in zip(page.locator("#time rect.bar").all(), sorted(view["commands"], key=lambda one: one["decided"])):
            assert float(left.get_attribute("width")) >= 4, right
        for scheme in ["light", "dark"]:
            page.emulate_media(color_scheme=scheme)
            stands_out(page, scheme)


def of_every_look(world):
    """The first nodes of a dump in every state that the page draws."""
    of = lambda kind: [item for item in world["items"] if item["kind"] == kind]
    nodes, claims = of("Node"), {item["metadata"]["name"]: item for item in of("NodeClaim")}
    leaving, broken, coming, unmanaged = nodes[:4]
    claims[leaving["metadata"]["name"]]["metadata"].update(deletionTimestamp="2026-03-02T11:59:00Z", finalizers=["karpenter.sh/termination"])
    broken["status"]["conditions"][0]["status"] = "False"
    status = claims[coming["metadata"]["name"]]["status"]
    status["conditions"] = [one for one in status["conditions"] if one["type"] == "Launched"]
    del status["nodeName"]
    for key in [key for key in unmanaged["metadata"]["labels"] if key.startswith("karpenter.sh/")]:
        del unmanaged["metadata"]["labels"][key]
    gone = {coming["metadata"]["name"]}
    lost = lambda item: item.get("spec", {}).get("nodeName") in gone or (item["kind"] == "Node" and item is coming) or (item["kind"] == "NodeClaim" and item is claims[unmanaged["metadata"]["name"]])
    world["items"] = [item for item in world["items"] if not lost(item)]
    return world


def shades(picture, box):
    """How often each of sixteen shades of grey occurs in a rectangle, as shares."""
    grey = picture.convert("L").crop((int(box["x"]) + 2, int(box["y"]) + 2, int(box["x"] + box["width"]) - 2, int(box["y"] + box["height"]) - 2))
    counts = grey.histogram()
    total = sum(counts)
    return [sum(counts[first : first + 16]) / total for first in range(0, 256, 16)]


@check
def verdicts_are_told_without_colour(playwright):
    """In shades of grey, and with the user's forced colours, swatches of the legend differ from each other."""
    from PIL import Image

    with still(of_every_look(dump(60))) as running:
        for options in [{"color_scheme": "light"}, {"color_scheme": "dark"}, {"forced_colors": "active"}, {"forced_colors": "active", "color_scheme": "dark"}]:
            with Browser(playwright, device_scale_factor=1, **options) as browser:
                page = browser.page
                page.goto(running.url)
                swatches = page.locator("#boxes .legend .swatch")
                equal(swatches.count(), 6, "looks")
                picture = Image.open(io.BytesIO(page.screenshot(full_page=True)))
                seen = [(one.get_attribute("class"), shades(picture, one.bounding_box())) for one in swatches.all()]
                for index, (name, left) in enumerate(seen):
                    for other, right in seen[:index]:
                        apart = sum(abs(a - b) for a, b in zip(left, right))
                        assert apart > 0.1, f"{options}: {name} and {other} look alike ({apart:.3f})"
                width = page.evaluate("document.documentElement.scrollWidth")
                assert width <= 1440, width


@check
def a_screen_reader_meets_what_the_page_tells(playwright):
    """Headings in order, drawings with texts, switches with states: all of it, with a node in detail and something assumed away."""
    with still(dump(12)) as running, Browser(playwright) as browser:
        page = browser.page
        page.goto(running.url)
        page.goto(f"{running.origin}/?node=default-00003&without=PodDoNotDisrupt:Pod/shop/web-00003-0")
        until(page, "document.querySelector('#live').textContent === 'live'")
        tree = page.locator("body").aria_snapshot()
        for expected in ('heading "What if"', 'heading "Cost over time"', 'heading "Pending pods"', 'heading "Table of nodes"', "switch", "columnheader", "rowheader", "img "):
            assert expected in tree, f"{expected} is missing in:\n{tree}"
        golden(Path(__file__).parent / "page.tree", tree)


def main():
    if not CHROMIUM:
        print("SKIPPED: there is no Chromium (Debian's package chromium)")
        return
    sets = {"steady": [name for name in CHECKS if name not in OF_SPEED], "speed": OF_SPEED}
    wanted = [name for word in sys.argv[1:] for name in sets.get(word, [word])] or list(CHECKS)
    failed = 0
    with sync_playwright() as playwright:
        for name in wanted:
            begun = time.monotonic()
            try:
                CHECKS[name](playwright)
                print(f"ok      {name} ({time.monotonic() - begun:.0f} s)", flush=True)
            except Exception:
                failed += 1
                print(f"FAILED  {name}", flush=True)
                traceback.print_exc()
    print(f"{len(wanted) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


main()
