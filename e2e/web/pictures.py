"""Pictures of the page for README.md and docs/page.md: a shop on `spokeshave up` grows, shrinks and waits; light, dark, a what-if. And the report of
`examples/simulate/quick.yaml` for docs/simulate.md and docs/simulate-report.md.

    pictures.py FOLDER
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cluster import CHROMIUM, PROGRAM, ROOT, Running, dump, still, until
from PIL import Image
from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent
SPEED = 30


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    with Running("up", "-f", str(HERE / "shop.yaml"), "--speed", str(SPEED), "--seed", "7") as running, sync_playwright() as playwright:
        scale = lambda name, replicas: running.api("PATCH", f"/apis/apps/v1/namespaces/shop/deployments/{name}", {"spec": {"replicas": replicas}})
        # Four hours of a shop, each of seconds.
        running.wait("the morning", lambda view: view["header"]["pods"] > 20)
        for web, api, train in [(60, 20, 4), (140, 40, 10), (260, 60, 18), (180, 60, 18), (90, 30, 8), (150, 50, 14), (70, 24, 8)]:
            for name, replicas in [("web", web), ("api", api), ("train", train)]:
                scale(name, replicas)
            time.sleep(11)
        scale("huge", 3)
        running.wait("what waits", lambda view: view["header"]["pending"] >= 3)
        shrinking(launched(playwright), running, scale, folder / "page-light.png")
    # The others of a dump, in which nodes may go and nobody takes them.
    with sync_playwright() as playwright, still(dump(90)) as running:
        browser = launched(playwright)
        node, toggles = guarded(running, running.view())
        shoot(browser, running, "dark", f"/?node={node}&group=zone", folder / "page-dark.png", 900)
        without = "".join(f"&without={toggle['without']}" for toggle in toggles)
        shoot(browser, running, "light", f"/?node={node}{without}", folder / "page-what-if.png", 1000)
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.html"
        scenario = ROOT / "examples/simulate/quick.yaml"
        subprocess.run([PROGRAM, "simulate", str(scenario), "--report", str(report)], check=True, stdout=subprocess.DEVNULL)
        browser = launched(playwright)
        for scheme in ["light", "dark"]:
            page = browser.new_context(viewport={"width": 1280, "height": 930}, color_scheme=scheme).new_page()
            page.goto(report.as_uri())
            save(page, folder / f"report-{scheme}.png")


def launched(playwright):
    return playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])


def shrinking(browser, running, scale, file):
    """The page in the moment in which nodes may go and have not gone yet."""
    scale("web", 150)
    time.sleep(6)
    scale("web", 40)
    for _ in range(300):
        if running.view()["header"]["couldSave"] > 0.1:
            break
        time.sleep(0.03)
    shoot(browser, running, "light", "/", file)


def guarded(running, view):
    """A node that a protected pod keeps, and nothing that could not be thought away."""
    for name in view["nodes"]["name"]:
        toggles = json.loads(running.get(f"/api/node/{name}"))["toggles"]
        if any(one["code"] == "PodDoNotDisrupt" for one in toggles) and all(one.get("without") for one in toggles):
            return name, toggles
    sys.exit("no node is kept by a protected pod")


def shoot(browser, running, scheme, path, file, height=1240):
    context = browser.new_context(viewport={"width": 1440, "height": height}, color_scheme=scheme)
    page = context.new_page()
    page.goto(running.url)
    page.goto(running.origin + path)
    until(page, "document.querySelector('#live').textContent === 'live'")
    save(page, file)
    context.close()


def save(page, file):
    page.screenshot(path=file)
    # Few colours: a third of the size.
    Image.open(file).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(file, optimize=True)
    print(file, file.stat().st_size)


main(Path(sys.argv[1]))
