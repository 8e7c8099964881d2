"""What there is to read, with JavaScript and without, and that nothing of it comes from elsewhere or runs by itself."""

from pathlib import Path

from browser import Browser, check, elsewhere, equal, live
from cluster import Running, dump, golden, still, until


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


# Attributes that run something or say how an element looks. Only the script itself places the text that is said of a box.
OWN_WILL = """[...document.querySelectorAll('*')].flatMap((one) => [...one.attributes].filter(({ name }) => name.startsWith('on') || (name === 'style' && one.id !== 'tip'))
  .map(({ name }) => `${one.tagName} ${name}`)).concat([...document.querySelectorAll('script')].filter((one) => !one.src).map(() => 'a script of its own'))"""
# What the page itself would run: what a check runs right away is not under its policy.
EVAL = """new Promise((done) => setTimeout(() => {
  try { new Function('return 1')(); done('a text became a function'); } catch { /* as it should be */ }
  const one = document.createElement('button');
  addEventListener('securitypolicyviolation', (event) => { if (event.effectiveDirective.startsWith('script-src-')) done(event.effectiveDirective); });
  one.setAttribute('onclick', 'document.title = "it ran"');
  document.body.append(one);
  one.click();
  one.remove();
  setTimeout(() => done(document.title), 5000);
}))"""


@check
def nothing_from_elsewhere(playwright):
    """Every page, its icon and what keeps it up to date come from the server that was asked, and run only what came in files."""
    with Running("up", "--demo", "--speed", "20") as running, Browser(playwright) as browser:
        page = browser.page
        answer = page.goto(running.url)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy, policy
        running.wait("nodes", lambda view: view["header"]["nodes"] > 2)
        until(page, "document.querySelectorAll('#nodes tbody tr').length > 2")
        for key in ["g", "s", "?", "Escape", "b", "ArrowRight", "Enter", "w", "Escape", "t", "p", "z", "[", ".", "/"]:
            page.keyboard.press(key)
            page.wait_for_timeout(100)
        equal(page.evaluate(OWN_WILL), [], "attributes that run or paint something")
        with browser.context.expect_page() as opened:
            page.locator("#nodes tbody a").first.click(modifiers=["Control"])
        live(opened.value)
        equal(browser.complaints, [], "what the browser complains of")
        equal(elsewhere(browser, running), [], "requests to elsewhere, or that could change something")
        equal(browser.workers, [], "service workers")
        assert len(browser.requests) > 20, browser.requests
        equal(page.evaluate(EVAL), "script-src-attr", "what stopped a handler in an attribute")


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


@check
def a_screen_reader_meets_what_the_page_tells(playwright):
    """Headings in order, drawings with texts, switches with states: all of it, with a node in detail and something assumed away."""
    with still(dump(12)) as running, Browser(playwright) as browser:
        page = browser.page
        page.goto(running.url)
        page.goto(f"{running.origin}/?node=default-00003&without=PodDoNotDisrupt:Pod/shop/web-00003-0")
        live(page)
        tree = page.locator("body").aria_snapshot()
        for expected in ('heading "What if"', 'heading "Cost over time"', 'heading "Pending pods"', 'heading "Table of nodes"', "switch", "columnheader", "rowheader", "img "):
            assert expected in tree, f"{expected} is missing in:\n{tree}"
        golden(Path(__file__).parents[1] / "page.tree", tree)
