"""A drawing that comes while somebody presses, selects, points or listens disturbs none of it."""

import re

from browser import Browser, Stopwatch, check, equal, later, live, until_true
from cluster import Running, dump, still, until

# The revision that the server has, whatever is drawn.
NEWEST = "fetch('/api/view').then((answer) => answer.json()).then((view) => view.revision)"
NAME = "document.querySelector('#nodes tbody th a')"
# How long the page keeps what is pressed under the pointer (STALE_AFTER in page.js).
HELD_MS = 5000


def in_demo(playwright, look):
    """Runs a check on the first command of the README, at real speed, once there are rows."""
    with Running("up", "--demo", "--speed", "1") as running, Browser(playwright) as browser:
        page = browser.page
        running.wait("nodes", lambda view: view["header"]["nodes"] > 2)
        page.goto(running.url)
        page.goto(f"{running.origin}/")
        live(page)
        until(page, f"{NAME} !== null")
        look(page)


@check
def a_click_that_lasts_over_redraws_is_a_click(playwright):
    """The button goes down on a name, the cluster changes, and the button comes up again."""

    def look(page):
        for _ in range(5):
            x, y = page.evaluate(f"(() => {{ const one = {NAME}; one.scrollIntoView(); const box = one.getBoundingClientRect(); return [box.x, box.y]; }})()")
            page.mouse.move(x + 10, y + 6)
            newest = page.evaluate(NEWEST)
            pressed = page.evaluate("performance.now()")
            page.mouse.down()
            # Two changes have come meanwhile, whether they are drawn at once or afterwards.
            until_true(page, f"the cluster has gone on from {newest} by two", lambda: page.evaluate(NEWEST) >= newest + 2, timeout=60000)
            page.wait_for_timeout(1000)
            page.mouse.up()
            if page.evaluate("performance.now()") - pressed < HELD_MS:
                break
        until_true(page, "what was clicked is open", lambda: "node=" in page.url)

    in_demo(playwright, look)


@check
def what_is_selected_stays_selected(playwright):
    """The name of a node, for as long as there is one."""

    def look(page):
        for _ in range(5):
            page.evaluate(f"getSelection().selectAllChildren({NAME})")
            name = page.evaluate("getSelection().toString()")
            assert name, "nothing is selected"
            later(page, revisions=3)
            selected, is_there = page.evaluate(f"[getSelection().toString(), document.querySelector('#nodes [data-row=\"{name}\"]') !== null]")
            if is_there:
                break
        equal((selected, is_there), (name, True), "what is selected, and whether its node is still there")

    in_demo(playwright, look)


@check
def the_sign_of_life_is_not_told_again_and_again(playwright):
    """It says that it is live from one drawing to the next; what announces it tells of changes only."""
    watch = """(() => {
      window.told = []; window.announced = [];
      const note = () => {
        const live = document.querySelector('#live'), text = live.textContent;
        if (told.at(-1) !== text) told.push(text);
        const spoken = [...document.querySelectorAll('[role=status], [aria-live]')].map((one) => one.textContent).join('|');
        if (announced.at(-1) !== spoken) announced.push(spoken);
      };
      new MutationObserver(note).observe(document, { subtree: true, childList: true, characterData: true });
      note();
    })()"""

    def look(page):
        page.evaluate(watch)
        watching = Stopwatch()
        later(page, revisions=8)
        told, announced = page.evaluate("[told, announced]")
        assert "" not in told, f"said in turn: {told}"
        # The numbers every ten seconds at most, and that it is not live, or is again.
        most = 2 + watching.seconds() / 10 + len(told)
        assert len(announced) <= most, f"announced in turn: {announced}"

    in_demo(playwright, look)


@check
def a_late_answer_about_a_box_is_not_shown_elsewhere(playwright):
    """The first answer is slow; the pointer has gone on to another box, and then away, when it comes."""
    held = []
    with still(dump(900, pods_per_node=2)) as running, Browser(playwright) as browser:
        page = browser.page
        page.goto(running.url)
        page.goto(f"{running.origin}/")
        live(page)
        page.route(re.compile(r"/api/box"), lambda route: route.continue_() if held else held.append(route))
        map_ = page.locator("#map").bounding_box()
        page.mouse.move(map_["x"] + 200, map_["y"] + 200)
        until_true(page, "a box is asked for", lambda: held)
        page.mouse.move(map_["x"] + 600, map_["y"] + 300)
        until(page, "!document.querySelector('#tip').hidden")
        of_second = page.evaluate("document.querySelector('#tip').textContent")
        held.pop().continue_()
        held.append(None)
        page.wait_for_timeout(1500)
        equal(page.evaluate("document.querySelector('#tip').textContent"), of_second, "what is said where the pointer is")
        page.unroute_all()
        held.clear()
        page.route(re.compile(r"/api/box"), lambda route: held.append(route))
        page.mouse.move(map_["x"] + 300, map_["y"] + 250)
        until_true(page, "a box is asked for", lambda: held)
        page.mouse.move(map_["x"] + 300, 5)
        until(page, "document.querySelector('#tip').hidden")
        for route in held:
            route.continue_()
        page.wait_for_timeout(1500)
        equal(page.evaluate("document.querySelector('#tip').hidden"), True, "that nothing is said where no box is")
        equal(browser.complaints, [], "what the browser complains of")
