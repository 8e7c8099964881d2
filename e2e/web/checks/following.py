"""The page follows the cluster, changes nothing in it, and says when it does not know how things stand."""

import json
import re
import time
import urllib.error

from api import Api
from browser import LIVE, REVISION, SHOP, Browser, Stopwatch, check, elsewhere, equal, live, of_speed, stays, until_true
from cluster import PATIENCE, Running, dump, until


@check
def follows_the_cluster(playwright):
    """A pod is protected, and its node's detail says so; without the annotation it does not."""
    with Running("up", "-f", SHOP, "--speed", "20") as running, Browser(playwright) as browser:
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
        live(page)
        protect(None)
        until(page, f"!{told}")


def that_may_go(running):
    """Nodes that may go, each with a pod of it."""
    view = running.view()
    verdicts = view["nodes"]["verdict"]
    names = [name for name, of in zip(view["nodes"]["name"], verdicts["of"]) if of is not None and verdicts["values"][of] != "keep"]
    return [name for name in names if pods_of(running, name)]


def pods_of(running, node):
    return json.loads(running.get(f"/api/node/{node}")).get("pods", [])


def with_open_budgets():
    """A cluster in which most nodes may go, and nobody takes them."""
    world = dump(60)
    world["items"][0]["spec"]["disruption"]["budgets"] = [{"nodes": "100%"}]
    return Api(world)


def protected_and_back(page, running, api, node):
    """Protects a pod of a node that may go, and takes that back; returns how long the page took to say so, everywhere where it says it."""
    pod = pods_of(running, node)[0]["pod"].split("/")[1]
    page.goto(f"{running.origin}/?node={node}")
    live(page)
    row = f"document.querySelector('#nodes [data-row=\"{node}\"]').closest('tr').textContent"
    keeps = f"""document.querySelector('#detail [data-toggle="PodDoNotDisrupt:Pod/shop/{pod}"]') !== null
      && document.querySelector('#detail .verdict b').textContent === 'keep'
      && document.querySelector('a.node[data-node="{node}"]').classList.contains('keep')
      && {row}.includes('Pod=shop/{pod}')"""
    goes = f"""document.querySelector('#detail [data-toggle*="/{pod}"]') === null
      && ['delete', 'replace'].includes(document.querySelector('#detail .verdict b').textContent)
      && document.querySelector('a.node[data-node="{node}"]').classList.contains('go')
      && !{row}.includes('Pod=shop/{pod}')"""
    until(page, goes)
    times = []
    for value, told in [({"karpenter.sh/do-not-disrupt": "true"}, keeps), ({}, goes)]:
        watch = Stopwatch()
        api.change("Pod", pod, lambda item: item["metadata"].update(annotations=value))
        until(page, told, timeout=30000)
        times.append(watch.seconds())
    print(f"    {node}: kept after {times[0]:.1f} s, may go after {times[1]:.1f} s", flush=True)
    return times


@check
def a_protected_pod_keeps_its_node(playwright):
    """Its verdict, its box, its row and its switches, and back again; all else stands still."""
    with with_open_budgets() as api, Running("web", "--kubeconfig", str(api.kubeconfig)) as running, Browser(playwright) as browser:
        running.wait("nodes", lambda view: view["header"]["nodes"] == 60)
        browser.page.goto(running.url)
        protected_and_back(browser.page, running, api, that_may_go(running)[0])
        equal(api.writes, [], "writes to the cluster")


@of_speed
def a_protected_pod_keeps_its_node_within_two_seconds(playwright):
    """The quickest of three, both ways."""
    with with_open_budgets() as api, Running("web", "--kubeconfig", str(api.kubeconfig)) as running, Browser(playwright) as browser:
        running.wait("nodes", lambda view: view["header"]["nodes"] == 60)
        browser.page.goto(running.url)
        times = [protected_and_back(browser.page, running, api, node) for node in that_may_go(running)[:3]]
        for way in zip(*times):
            assert min(way) <= 2 * PATIENCE, times


# All that the help lists, with those that move the focus.
KEYS = ["g", "s", "b", "ArrowRight", "Enter", "w", "w", "z", "[", "]", ".", "t", "Tab", "Enter", "p", "Enter", "?", "Escape", "/", "m", "l", "Enter", "Escape", "Escape", "Tab", "Space"]


@check
def looking_changes_nothing(playwright):
    """All keys for a minute, and every switch of every node: the cluster gets nothing but questions."""
    with Api(dump(30)) as api, Running("web", "--kubeconfig", str(api.kubeconfig)) as running, Browser(playwright) as browser:
        running.wait("nodes", lambda view: view["header"]["nodes"] == 30)
        page, before = browser.page, json.dumps(api.items)
        page.goto(running.url)
        listed = page.evaluate("[...document.querySelectorAll('#keys kbd, #keys dt')].flatMap((one) => one.textContent.split(/\\s+/))")
        missing = [key for key in ["g", "s", "b", "w", "z", "t", "p", "/", "?"] if key not in listed]
        equal(missing, [], f"keys that are pressed and not listed among {listed}")
        end, switched = time.monotonic() + 60, 0
        for name in running.view()["nodes"]["name"]:
            page.goto(f"{running.origin}/?node={name}")
            live(page)
            for number in range(page.locator("#detail [data-toggle]").count()):
                page.evaluate(f"document.querySelectorAll('#detail [data-toggle]')[{number}]?.click()")
                switched += 1
            until(page, "document.querySelector('#detail [data-toggle]') === null || !document.querySelector('#whatif').hidden")
            for key in KEYS if time.monotonic() < end else []:
                page.keyboard.press(key)
        while time.monotonic() < end:
            for key in KEYS:
                page.keyboard.press(key)
            page.wait_for_timeout(100)
        assert switched >= 20, f"{switched} switches prove little"
        equal(api.writes, [], "writes to the cluster")
        equal(elsewhere(browser, running), [], "requests of the browser that could change something")
        equal(json.dumps(api.items), before, "the objects")
        assert len(api.asked) > 30, api.asked


@check
def a_page_whose_drawings_are_refused_is_not_live(playwright):
    """Its cookie is lost while its stream goes on: it says so, and not that it is live, until it is let in again."""
    told = "document.querySelector('#live').textContent === '401: open the printed address again'"
    with Running("up", "--demo", "--speed", "20") as running, Browser(playwright) as browser:
        page = browser.page
        page.goto(running.url)
        live(page)

        def is_told():
            # An answer that was on its way has brought it back.
            browser.context.clear_cookies()
            return page.evaluate(told)

        until_true(page, "it is told that it is not let in", is_told)
        # Signs of life come every few seconds, and change nothing of that.
        stays(page, told)
        other = browser.context.new_page()
        other.goto(running.url)
        other.close()
        live(page)


@check
def a_page_that_gets_no_answer_is_not_live(playwright):
    """Its stream goes on while what it asks for does not arrive: it says so until it is drawn anew."""
    told = "document.querySelector('#live').textContent === 'not drawn anew'"
    drawings = re.compile(r"/(\?.*)?$")
    with Running("up", "--demo", "--speed", "20") as running, Browser(playwright) as browser:
        page = browser.page
        page.goto(running.url)
        live(page)
        page.route(drawings, lambda route: route.abort())
        until(page, told)
        stays(page, told)
        page.unroute(drawings)
        live(page)


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
        live(page)
        for _ in range(3):
            shown = page.evaluate("document.documentElement.dataset.revision")
            until(page, f"document.documentElement.dataset.revision !== '{shown}'", timeout=15000)
        equal(page.evaluate("open_most"), 1, "fetches of one page at the same time")


@check
def a_page_that_is_held_up_blinds_no_other(playwright):
    """Whoever listens for all is busy with something else: the others listen for themselves until it is back."""
    with Running("up", "-f", SHOP, "--speed", "20") as running, Browser(playwright) as browser:
        first, second = browser.page, browser.context.new_page()
        first.goto(running.url)
        live(first)
        second.goto(running.origin)
        live(second)
        # Not waited for: the page is busy for half a minute.
        first.evaluate("setTimeout(() => { const end = Date.now() + 30000; while (Date.now() < end); }, 0)")
        deployment = "/apis/apps/v1/namespaces/shop/deployments/web"
        second.wait_for_timeout(7000)
        replicas = running.api("GET", deployment)["spec"]["replicas"] + 2
        running.api("PATCH", deployment, {"spec": {"replicas": replicas}})
        shown = running.wait("two more", lambda view: running.api("GET", deployment)["status"].get("readyReplicas") == replicas)["revision"]
        until(second, f"{REVISION} >= {shown} && {LIVE}", timeout=15000)
        # A page that comes now is not blind either.
        third = browser.context.new_page()
        third.goto(running.origin)
        live(third, timeout=15000)
        live(first, timeout=60000)
