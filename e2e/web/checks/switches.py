"""Switches, choices and what is typed: all of it is in the address, whatever is done before it is drawn."""

import json
import re

from browser import MATCHED, REVISION, Browser, check, equal, live, until_true
from cluster import dump, still, until


def of_several(running, least=2):
    """A node that several things keep, each of which can be assumed away, and the values of their switches."""
    for name in running.view()["nodes"]["name"]:
        toggles = json.loads(running.get(f"/api/node/{name}"))["toggles"]
        keys = [one["without"] for one in toggles if one["without"]]
        if len(keys) >= least:
            return name, keys
    raise AssertionError(f"no node has {least} switches")


ON = "document.querySelectorAll('#detail [aria-checked=true]').length"


@check
def toggles_survive_a_reload(playwright):
    """Two blockers and another node, all gone: whoever opens the address is told the same."""
    with still(dump(100)) as running, Browser(playwright) as browser:
        page = browser.page
        node, keys = of_several(running)
        other = next(name for name in running.view()["nodes"]["name"] if name != node)
        page.goto(running.url)
        page.goto(f"{running.origin}/?node={node}&gone=Node/{other}")
        for number, key in enumerate(keys[:2], 1):
            page.locator(f"#detail [data-toggle='{key}']").click()
            until(page, f"{ON} === {number}")
        told = page.locator("#whatif").inner_text()
        assert "Nothing is changed in the cluster" in told and "→" in told, told
        answer = json.loads(running.get(f"/api/whatif?without={keys[0]}&without={keys[1]}&gone=Node/{other}"))
        assert f"${answer['priceBefore']:.2f}/h → ${answer['priceAfter']:.2f}/h" in " ".join(told.split()), (told, answer["priceAfter"])
        equal(page.url.count("without=") + page.url.count("gone="), 3, "what the address assumes away")
        page.reload()
        equal(page.locator("#whatif").inner_text(), told, "the answer after a reload")
        equal(page.locator("#detail [aria-checked=true]").count(), 2, "switches of the node that are on")
        equal(page.locator("#whatif [aria-checked=true]").count(), 3, "switches of the banner that are on")
        page.keyboard.press("w")
        until(page, f"{ON} === 1")
        page.locator("#whatif [aria-checked=true]", has_text="gone").click()
        until(page, "document.querySelectorAll('#whatif [aria-checked=true]').length === 1")
        page.locator("#whatif [aria-checked=true]").click()
        page.wait_for_selector("#whatif", state="hidden")


def hold(page, pattern):
    """Holds what is asked for until the returned function is called."""
    held, released = [], []
    page.route(re.compile(pattern), lambda route: route.continue_() if released else held.append(route))

    def release():
        released.append(True)
        for route in held:
            route.continue_()

    return release


@check
def switches_in_quick_succession_all_count(playwright):
    """Each is pressed before the answer to the one before is drawn, as where answers take seconds."""
    with still(dump(100)) as running, Browser(playwright) as browser:
        page, press = browser.page, browser.page.keyboard.press
        node, keys = of_several(running)
        page.goto(running.url)

        def anew():
            page.goto(f"{running.origin}/?node={node}")
            live(page)
            return hold(page, r"/\?.*(without|group|range)=")

        release = anew()
        for key in keys[:2]:
            page.locator(f"#detail [data-toggle='{key}']").click()
        release()
        until(page, f"{ON} === 2")
        equal([key for key in keys[:2] if key not in page.url], [], f"switches that are not in {page.url}")
        page.unroute_all()

        release = anew()
        entries = page.evaluate("history.length")
        press("w")
        press("w")
        release()
        until_true(page, "what is put back at once is not assumed away", lambda: "without=" not in page.url)
        until(page, f"document.querySelector('#detail [data-toggle]') && {ON} === 0")
        assert page.evaluate("history.length") - entries <= 2, "more steps back than were made"
        page.unroute_all()

        release = anew()
        for key in ["g", "g", "z", "z", "z"]:
            press(key)
        release()
        until_true(page, "two steps of one choice, three of another", lambda: "group=type" in page.url and "range=7d" in page.url)
        until(page, "document.querySelector('#time [aria-current]').textContent === '7d'")
        equal(page.locator("#boxes nav").first.locator("[aria-current]").inner_text(), "type", "what boxes are grouped by")
        page.unroute_all()


@check
def a_node_that_is_chosen_while_typing_is_opened(playwright):
    with still(dump(40)) as running, Browser(playwright) as browser:
        page = browser.page
        page.goto(running.url)
        live(page)
        page.keyboard.press("/")
        page.keyboard.type("ml-")
        page.locator("#nodes tbody a").nth(2).click()
        page.wait_for_selector("#detail .summary")
        # Longer than what is typed waits for the next letter.
        page.wait_for_timeout(1000)
        assert "node=" in page.url, page.url
        equal(page.locator("#detail .summary").count(), 1, "nodes in detail")


@check
def the_part_of_the_table_stays(playwright):
    """Whoever reads the second part and chooses a node of it, or another stretch of time, goes on reading there."""
    told = "document.querySelector('#nodes header .note').textContent"
    with still(dump(300, pods_per_node=2)) as running, Browser(playwright) as browser:
        page = browser.page
        page.goto(running.url)
        page.goto(f"{running.origin}/?part=1")
        live(page)
        assert "251 to 300" in page.evaluate(told), page.evaluate(told)
        page.locator("#nodes tbody th a").nth(30).click()
        page.wait_for_selector("#detail .summary")
        assert "251 to 300" in page.evaluate(told), page.evaluate(told)
        equal(page.locator("#nodes tr.chosen").count(), 1, "chosen rows")
        page.keyboard.press("z")
        until(page, "document.querySelector('#time [aria-current]').textContent === '6h'")
        assert "251 to 300" in page.evaluate(told), page.evaluate(told)
        # Another order has other rows there.
        page.locator("#nodes [data-sort=price]").click()
        until(page, "document.querySelector('#nodes [aria-sort] [data-sort=price]') !== null")
        assert "1 to 250" in page.evaluate(told), page.evaluate(told)


@check
def what_is_typed_is_what_is_found(playwright):
    """The field says what is shown: after Escape, which is the way out of it, and one step back, which is one word."""
    field = "document.querySelector('#find').value"
    with still(dump(40)) as running, Browser(playwright) as browser:
        page, press = browser.page, browser.page.keyboard.press
        page.goto(running.url)
        live(page)
        entries = page.evaluate("history.length")
        press("/")
        for letter in "ml-000":
            page.keyboard.type(letter)
            # Long enough for what was typed so far to be looked for.
            until_true(page, f"{letter} is looked for", lambda: page.url.endswith(f"find={page.evaluate(field)}"))
        press("Enter")
        until(page, MATCHED)
        page.wait_for_timeout(500)
        equal(page.evaluate("history.length") - entries, 1, "steps back that a word and Enter make")
        press("Escape")
        until(page, "document.activeElement.id !== 'find'")
        equal((page.evaluate(field), "find=ml-000" in page.url), ("ml-000", True), "the field after Escape, and whether it is still looked for")
        press("/")
        press("End")
        page.keyboard.type("0")
        until_true(page, "the next word is looked for", lambda: page.url.endswith("find=ml-0000"))
        shown = page.evaluate(REVISION)
        page.go_back()
        until(page, f"{field} === new URLSearchParams(location.search).get('find')")
        equal((page.evaluate(field), page.evaluate(REVISION)), ("ml-000", shown), "the field one step back")
        rows = page.locator("#nodes tbody th").all_inner_texts()
        assert rows and all(name.startswith("ml-000") for name in rows), rows
