"""A server that stands still, is cut off, ends and begins again, or has many readers, some of whom never read: what is shown afterwards is what is so."""

import contextlib
import itertools
import os
import signal
import socket
from urllib.parse import urlsplit

from api import Api
from browser import LIVE, REVISION, SHOP, Browser, Stopwatch, check, equal, live, resident_kib, same_as_fresh
from cluster import PATIENCE, Running, dump, free_port, still, until
from relay import Relay

STALE = "document.querySelector('#live').textContent.startsWith('stale since')"


@check
def stale_is_said_and_it_comes_back(playwright):
    """The server is stopped for a while: the page says so, and goes on afterwards, with all that has happened."""
    with Running("up", "--demo", "--speed", "20") as running, Browser(playwright) as browser:
        page = browser.page
        page.goto(running.url)
        live(page)
        os.kill(running.process.pid, signal.SIGSTOP)
        watch = Stopwatch()
        try:
            until(page, STALE, timeout=15000)
            print(f"    stale is said after {watch.seconds():.1f} s", flush=True)
            page.wait_for_timeout(max(0, 20 - watch.seconds()) * 1000)
            assert page.evaluate(STALE), page.locator("#live").inner_text()
        finally:
            os.kill(running.process.pid, signal.SIGCONT)
        watch = Stopwatch()
        live(page)
        print(f"    live again after {watch.seconds():.1f} s", flush=True)
        same_as_fresh(browser, page)


@check
def a_stream_that_is_cut_is_resumed(playwright):
    """All connections of the browser end twice, in the middle of whatever they bring."""
    with Running("up", "-f", SHOP, "--speed", "20") as running, Relay(urlsplit(running.origin).port) as relay, Browser(playwright) as browser:
        page = browser.page
        origin = f"http://127.0.0.1:{relay.port}"
        page.goto(f"{origin}/?token={running.token}")
        live(page)
        for _ in range(2):
            assert relay.cut() > 0, "there was no connection"
            known = running.view()["revision"]
            newest = running.wait("something new", lambda view: view["revision"] > known + 1)["revision"]
            until(page, f"{REVISION} >= {newest} && {LIVE}", timeout=30000)
            same_as_fresh(browser, page)


@check
def a_server_that_begins_again_is_not_taken_for_the_one_before(playwright):
    """Another dump on the same port, whose first revision has the same number."""
    port = free_port()
    rows = "document.querySelectorAll('#nodes tbody tr').length"
    with Browser(playwright) as browser:
        page = browser.page
        with still(dump(10), "--listen", f"127.0.0.1:{port}") as before:
            page.goto(before.url)
            live(page)
            equal(page.evaluate(rows), 10, "rows")
        with still(dump(25), "--listen", f"127.0.0.1:{port}") as after:
            # Its cookie is that of the run that has ended.
            until(page, "document.querySelector('#live').textContent.startsWith('401')", timeout=30000)
            other = browser.context.new_page()
            other.goto(after.url)
            live(other)
            equal(other.evaluate(rows), 25, "rows of a page that is opened now")
            # The one before is let in again by the new cookie. Until it shows the same it is not live.
            for _ in range(int(600 * PATIENCE)):
                said, shown = page.evaluate(f"[{LIVE}, {rows}]")
                assert not said or shown == 25, f"{shown} rows of the run before are live"
                if said:
                    break
                page.wait_for_timeout(50)
            equal((said, shown), (True, 25), "whether it is live again, and its rows")
            same_as_fresh(browser, page)


def settled_kib(running):
    """What a server takes that has drawn its page a few times: what drawing takes is kept for the next."""
    for _ in range(20):
        running.get("/")
    return resident_kib(running.process)


def restless(api, number):
    """Something happens in a cluster in which else nothing does."""
    pods = [item["metadata"]["name"] for item in api.items if item["kind"] == "Pod" and "nodeName" in item["spec"]]
    value = {"karpenter.sh/do-not-disrupt": "true"} if number // len(pods) % 2 == 0 else {}
    api.change("Pod", pods[number % len(pods)], lambda item: item["metadata"].update(annotations=value))


@check
def eight_tabs_are_all_live(playwright):
    """More pages than a browser opens connections to one server: all follow the cluster, also when the one that listens for them is closed."""
    with Api(dump(100)) as api, Running("web", "--kubeconfig", str(api.kubeconfig)) as running, Browser(playwright) as browser:
        running.wait("nodes", lambda view: view["header"]["nodes"] == 100)
        browser.page.goto(running.url)
        live(browser.page)
        before = settled_kib(running)
        pages = [browser.page] + [browser.context.new_page() for _ in range(7)]
        for page in pages[1:]:
            page.goto(running.origin)
        for page in pages:
            live(page)
        # Whoever listened for all is gone; the others say `stale` after five seconds in which they hear nothing.
        pages[0].close()
        pages[1].wait_for_timeout(7000)
        known = running.view()["revision"]
        restless(api, 0)
        shown = running.wait("what has changed", lambda view: view["revision"] > known)["revision"]
        for page in pages[1:]:
            until(page, f"{REVISION} >= {shown} && {LIVE}")
        grown = (resident_kib(running.process) - before) / 1024
        print(f"    the server grew by {grown:.1f} MiB")
        for page in pages[1:]:
            same_as_fresh(browser, page)
        assert grown < 10, grown
        equal(browser.complaints, [], "what the browser complains of")


def ask_and_never_read(running, path):
    """A client that asks, and takes nothing of the answer."""
    host = running.origin.split("//")[1]
    client = socket.socket()
    # Before it is connected: what is announced then is all that is ever taken.
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", urlsplit(running.origin).port))
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {running.token}\r\n\r\n".encode())
    return client


@check
def readers_who_never_read_take_nothing_from_the_others(playwright):
    """Forty of them, of pages and of streams, in a cluster that changes all the time: the page goes on, and the server does not grow for them."""
    with contextlib.ExitStack() as all_of_it:
        api = all_of_it.enter_context(Api(dump(100)))
        running = all_of_it.enter_context(Running("web", "--kubeconfig", str(api.kubeconfig)))
        browser = all_of_it.enter_context(Browser(playwright))
        page, numbers = browser.page, itertools.count()
        running.wait("nodes", lambda view: view["header"]["nodes"] == 100)
        page.goto(running.url)
        live(page)

        def changes(seconds):
            for _ in range(seconds * 2):
                restless(api, next(numbers))
                page.wait_for_timeout(500)

        # What the first looks take is not theirs.
        changes(5)
        before = settled_kib(running)
        for number in range(40):
            all_of_it.enter_context(ask_and_never_read(running, ["/api/changes", "/"][number % 2]))
        shown = page.evaluate(REVISION)
        # Longer than the half minute after which a connection is given up whose client takes nothing.
        changes(35)
        until(page, f"{REVISION} > {shown} + 5 && {LIVE}")
        grown = (resident_kib(running.process) - before) / 1024
        print(f"    the server grew by {grown:.1f} MiB while the page was drawn {page.evaluate(REVISION) - shown:.0f} times")
        assert grown < 10, grown
