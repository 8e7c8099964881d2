"""The keyboard alone, with the keys of the page and with those of every page; the focus is to be seen after each."""

import re

from browser import MATCHED, ON_A_BOX, SEEN, Browser, check, equal, later, live, press_seen
from checks.switches import hold, of_several
from cluster import Running, dump, still, until

ON_SWITCH = "document.activeElement.matches('#detail [data-toggle]')"


@check
def keyboard_alone(playwright):
    """Finds a node, opens it, reads, toggles, goes back, opens a pending pod, sorts the table; the focus is always to be seen."""
    with still(dump(100)) as running, Browser(playwright) as browser:
        page, press = browser.page, browser.page.keyboard.press
        page.goto(running.url)
        press_seen(page, "/")
        page.keyboard.type("do-not-disrupt")
        page.wait_for_url(re.compile("find="))
        until(page, MATCHED)
        until(page, "document.activeElement.id === 'find'")
        press("Escape")
        equal(page.input_value("#find"), "do-not-disrupt", "the field after Escape")
        press_seen(page, "b")
        until(page, ON_A_BOX)
        before = page.evaluate("document.activeElement.dataset.node")
        press_seen(page, "ArrowRight")
        until(page, f"document.activeElement.dataset.node !== '{before}'")
        until(page, ON_A_BOX)
        press("Enter")
        page.wait_for_selector("#detail [data-toggle]")
        until(page, "document.activeElement.id === 'detail'")
        press_seen(page, "w")
        page.wait_for_selector("#whatif:not([hidden])")
        press_seen(page, "w")
        page.wait_for_selector("#whatif", state="hidden")
        press_seen(page, "Escape")
        page.wait_for_selector("#detail .empty")
        press_seen(page, "p")
        until(page, "document.activeElement.closest('#pending') !== null")
        press("Enter")
        page.wait_for_selector("#detail .summary")
        until(page, "document.activeElement.id === 'detail'")
        press_seen(page, "Escape")
        page.wait_for_selector("#detail .empty")
        press_seen(page, "z")
        page.wait_for_url(re.compile("range=6h"))
        until(page, "document.querySelector('#time [aria-current]').textContent === '6h'")
        press_seen(page, "t")
        until(page, "!!document.activeElement.dataset.row")
        for _ in range(12):
            if page.evaluate("document.activeElement.dataset.sort === 'cpu'"):
                break
            press_seen(page, "Shift+Tab")
        press_seen(page, "Enter")
        page.wait_for_selector("#nodes th[aria-sort=descending]")
        until(page, "document.activeElement.dataset.sort === 'cpu'")
        shares = [int(text.split()[0]) for text in page.locator("#nodes tbody td:nth-child(6)").all_inner_texts()]
        equal(shares, sorted(shares, reverse=True), "shares of cpu")
        # Not beyond the last row, where the page ends.
        press_seen(page, *["Tab"] * 8)


def tab_until(page, what, holds, key="Tab", most=250):
    """Presses Tab until something has the focus; each step is to be seen."""
    for _ in range(most):
        if page.evaluate(holds):
            return
        press_seen(page, key)
    raise AssertionError(f"{what} is not reached by {most} times {key}")


def walk(page, node):
    """With Tab, arrows, Enter, Space and Escape alone: from the top into the table, a node of it, one of its switches, back, and to a pod that waits."""
    press_seen(page, "Tab")
    equal(page.evaluate("document.activeElement.className"), "skip", "what Tab reaches first")
    page.keyboard.press("Enter")
    row = f"document.activeElement.dataset.row === '{node}'"
    tab_until(page, f"the row of {node}", row)
    page.keyboard.press("Enter")
    page.wait_for_selector("#detail .summary")
    until(page, "document.activeElement.id === 'detail'")
    tab_until(page, "a switch", ON_SWITCH)
    press_seen(page, "Space")
    page.wait_for_selector("#whatif:not([hidden])")
    until(page, "document.activeElement.matches('#detail [data-toggle][aria-checked=true]')")
    press_seen(page, "Space")
    page.wait_for_selector("#whatif", state="hidden")
    until(page, ON_SWITCH)
    tab_until(page, "what closes it", "document.activeElement.id === 'close'", key="Shift+Tab")
    press_seen(page, "Enter")
    page.wait_for_selector("#detail .empty")


@check
def keys_of_every_page_are_enough(playwright):
    with still(dump(60)) as running, Browser(playwright) as browser:
        page = browser.page
        node, _ = of_several(running, least=1)
        page.goto(running.url)
        page.goto(f"{running.origin}/")
        live(page)
        walk(page, node)
        tab_until(page, "a pod that waits", "!!document.activeElement.dataset.pod")
        press_seen(page, "Enter")
        page.wait_for_selector("#detail .summary")
        until(page, "document.activeElement.id === 'detail'")
        tab_until(page, "a box", ON_A_BOX, key="Shift+Tab")
        before = page.evaluate("document.activeElement.dataset.node")
        for key in ["ArrowDown", "ArrowRight", "ArrowUp", "ArrowLeft"]:
            press_seen(page, key)
            until(page, ON_A_BOX)
        assert page.evaluate("document.activeElement.dataset.node") is not None, before
        tab_until(page, "a heading", "!!document.activeElement.dataset.sort")
        page.keyboard.press("Enter")
        page.wait_for_selector("#nodes th[aria-sort]")
        until(page, SEEN)


@check
def the_focus_outlives_redraws(playwright):
    """The same steps in a cluster that changes all the time, and then a while in which nothing is pressed."""
    with Running("up", "--demo", "--speed", "1") as running, Browser(playwright) as browser:
        page = browser.page
        running.wait("nodes", lambda view: view["header"]["nodes"] > 2)
        page.goto(running.url)
        page.goto(f"{running.origin}/")
        live(page)
        until(page, "document.querySelectorAll('#nodes tbody tr').length > 2")
        press_seen(page, "Tab")
        page.keyboard.press("Enter")
        tab_until(page, "a row", "!!document.activeElement.dataset.row")
        lost = "window.lost = 0; setInterval(() => { if (document.activeElement === document.body) window.lost += 1; }, 10)"
        page.evaluate(f"(() => {{ {lost} }})()")
        later(page, revisions=5)
        equal(page.evaluate("window.lost"), 0, "moments in which nothing had the focus")
        press_seen(page, *["Tab"] * 5, *["Shift+Tab"] * 5)


@check
def a_drawing_that_comes_late_keeps_the_focus(playwright):
    """A box has the focus while a drawing without it is on its way: the focus stays among the boxes, and is to be seen."""
    with still(dump(100)) as running, Browser(playwright) as browser:
        page, press = browser.page, browser.page.keyboard.press
        page.goto(running.url)
        release = hold(page, r"/\?find=")
        press("/")
        page.keyboard.type("do-not-disrupt")
        page.wait_for_url(re.compile("find="))
        press("Escape")
        press("b")
        until(page, ON_A_BOX)
        gone = page.evaluate("document.activeElement.dataset.node")
        release()
        until(page, MATCHED)
        equal(page.locator(f"a.node[data-node='{gone}']").count(), 0, "boxes that were not typed for")
        until(page, ON_A_BOX)
        until(page, SEEN)
        # The next key goes on from there.
        press("Enter")
        page.wait_for_selector("#detail [data-toggle]")
        until(page, "document.activeElement.id === 'detail'")
