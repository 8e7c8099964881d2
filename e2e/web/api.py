"""An API server with the objects of a dump, for `spokeshave web`: it lists and watches them, changes one when a check does, refuses lists, and writes down what it is asked for."""

import copy
import json
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

KUBECONFIG = """apiVersion: v1
kind: Config
current-context: a
clusters: [{name: a, cluster: {server: "http://127.0.0.1:%d"}}]
users: [{name: a, user: {token: x}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
"""


def plural(item):
    return item["kind"].lower() + "s"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def date_time_string(self, timestamp=None):
        """The time there: that of the dumps."""
        return "Mon, 02 Mar 2026 12:00:00 GMT"

    def log_message(self, *_):
        pass

    def _answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _refuse(self, status, reason):
        self._answer(status, {"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": reason, "message": "sam may not do this", "code": status})

    def do_GET(self):
        address = urlsplit(self.path)
        self.server.asked.append((self.command, address.path))
        kind, query = address.path.rsplit("/", 1)[1], parse_qs(address.query)
        if kind == "version" and self.server.is_broken:
            self._refuse(500, "InternalError")
        elif kind == "version":
            self._answer(200, {"major": "1", "minor": "34", "gitVersion": "v1.34.0"})
        elif kind in self.server.refused:
            self._refuse(403, "Forbidden")
        elif "watch" in query:
            self._watch(kind, int(query.get("resourceVersion", ["1"])[0] or 1))
        else:
            with self.server.changed:
                items = [item for item in self.server.items if plural(item) == kind]
                version = str(self.server.version)
                self._answer(200, {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": version}, "items": items})

    def _watch(self, kind, since):
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        while True:
            with self.server.changed:
                news = [(version, item) for version, item in self.server.news if version > since and plural(item) == kind]
                if not news:
                    self.server.changed.wait()
                    continue
            for since, item in news:
                line = json.dumps({"type": "MODIFIED", "object": item}).encode() + b"\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.flush()

    def _write(self):
        self.server.asked.append((self.command, urlsplit(self.path).path))
        self._refuse(403, "Forbidden")
        # What was to be written has not been read.
        self.close_connection = True

    do_POST = do_PUT = do_PATCH = do_DELETE = _write


class Api(ThreadingHTTPServer):
    """Serves until the end of the block; `refused` are plurals of kinds that nobody may list."""

    daemon_threads = True

    def __init__(self, world, refused=()):
        super().__init__(("127.0.0.1", 0), Handler)
        self.items, self.refused, self.asked = world["items"], refused, []
        # Whether it has trouble of its own, which whoever looks at a cluster meets first.
        self.is_broken = False
        self.news, self.version, self.changed = [], 1, threading.Condition()
        self.folder = tempfile.TemporaryDirectory()
        self.kubeconfig = Path(self.folder.name) / "kubeconfig"
        self.kubeconfig.write_text(KUBECONFIG % self.server_address[1], encoding="utf-8")
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        """Whoever followed has gone."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()
        self.folder.cleanup()

    def change(self, kind, name, edit):
        """Changes one object, for whoever watches it."""
        with self.changed:
            item = next(item for item in self.items if (item["kind"], item["metadata"]["name"]) == (kind, name))
            edit(item)
            self.version += 1
            item["metadata"]["resourceVersion"] = str(self.version)
            self.news.append((self.version, copy.deepcopy(item)))
            self.changed.notify_all()

    @property
    def writes(self):
        return [request for request in self.asked if request[0] != "GET"]
