"""The report of a simulation in a genuine browser: what needs one to be seen. Needs Chromium and the package `playwright` (its own browser is not used).

    report.py REPORT.html [COMPARISON.json [TREE]]     checks one report, its numbers against the JSON of the same simulation, and what a
                                                       screen reader meets against the file TREE, which BLESS=1 rewrites

The report is opened as a file, without JavaScript, in both colour schemes and on a narrow screen.
"""

import json
import sys
from pathlib import Path

from cluster import CHROMIUM, golden
from playwright.sync_api import sync_playwright

LARGEST_BYTES = 500_000


def luminance(colour):
    """Relative luminance of `rgb(1, 2, 3)`, as WCAG defines it."""
    parts = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def style(page, selector, name):
    return page.locator(selector).first.evaluate(f"(element) => getComputedStyle(element).getPropertyValue('{name}')")


def look(browser, path, scheme, width):
    """Opens the report and returns what it looks like."""
    context = browser.new_context(java_script_enabled=False, color_scheme=scheme, viewport={"width": width, "height": 900})
    page = context.new_page()
    requests, complaints = [], []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.goto(path.resolve().as_uri())
    assert requests == [path.resolve().as_uri()], f"requests beside the file itself: {requests}"
    assert not complaints, complaints
    return context, page


def readable(page, scheme):
    """Every kind of text has the contrast that WCAG AA asks for."""
    panel = style(page, "section", "background-color")
    for selector, name in [("h2", "color"), (".note", "color"), ("caption", "color"), (".badge", "color"), ("svg .axis", "fill"), ("svg .name", "fill"), ("figcaption", "color")]:
        if page.locator(selector).count():
            found = contrast(style(page, selector, name), panel)
            assert found >= 4.5, f"{scheme}: {selector} has a contrast of {found:.2f}"
    # Lines are graphical objects, for which 3 : 1 is enough.
    for line in page.locator("figure .line").all():
        found = contrast(line.evaluate("(line) => getComputedStyle(line).stroke"), panel)
        assert found >= 3, f"{scheme}: a line has a contrast of {found:.2f}"
    return panel


def check(report, comparison, expected_tree):
    size = report.stat().st_size
    assert size <= LARGEST_BYTES, f"{size} bytes"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        panels = {}
        for scheme in ("light", "dark"):
            context, page = look(browser, report, scheme, 1200)
            panels[scheme] = readable(page, scheme)
            context.close()
        assert luminance(panels["light"]) > 0.5 > luminance(panels["dark"]), panels
        context, page = look(browser, report, "light", 400)
        overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert overflow <= 0, f"a narrow screen scrolls sideways by {overflow} pixels"
        # What a screen reader meets: headings in order, tables with names, drawings with texts.
        tree = page.locator("body").aria_snapshot()
        for expected in ('heading "Result"', 'heading "What is not modelled"', 'heading "Inputs"', 'img "Cost per hour"', "columnheader", "rowheader"):
            assert expected in tree, f"{expected} is missing in:\n{tree}"
        assert tree.count("- heading") >= 8, tree
        if expected_tree:
            golden(expected_tree, tree)
        numbers = page.locator("data").evaluate_all("(all) => all.map((one) => [one.dataset.of, Number(one.value)])")
        browser.close()
    assert numbers, "no number has its exact value"
    if comparison:
        check_numbers(numbers, json.loads(comparison.read_text()))
    print(f"{report}: {size} bytes, one request, {len(numbers)} numbers{' as in the JSON' if comparison else ''}, light and dark, 400 pixels wide, without JavaScript")


def check_numbers(numbers, comparison):
    policies = {policy["name"]: policy["values"] for policy in comparison["policies"]}
    for name, value in numbers:
        policy, metric, field = name.split(" ")
        summary = policies[policy][metric]
        expected = summary["mean"] if field == "mean" else summary["against"]["relative"] if field == "relative" else summary["against"]["relativeInterval"][field]
        assert abs(value - expected) <= 1e-9 * (1 + abs(expected)), f"{name}: {value}, the JSON says {expected}"


if __name__ == "__main__":
    if not CHROMIUM:
        print("SKIPPED: the report in a browser, because there is no Chromium (Debian's package chromium)")
        sys.exit(0)
    check(*[Path(argument) for argument in sys.argv[1:4]], *[None] * (4 - len(sys.argv)))
