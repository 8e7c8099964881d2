"""A client of an API server as a kubeconfig describes it. Needs nothing but Python 3.9 or later."""

import base64
import http.client
import os
import re
import ssl
import tempfile
import urllib.parse

# Multiplies waits, for machines that are busy with something else.
PATIENCE = float(os.environ.get("PATIENCE", "1"))


class Server:
    """One API server, reached as its kubeconfig says."""

    def __init__(self, kubeconfig, user_agent):
        self.user_agent = user_agent
        text = open(kubeconfig, encoding="utf-8").read()

        def field(name):
            found = re.search(rf"^\s*{name}:\s*\"?([^\s\"]+)", text, re.M)
            return found and found.group(1)

        url = urllib.parse.urlparse(field("server"))
        self.host, self.port, self.token = url.hostname, url.port, field("token")
        authority = base64.b64decode(field("certificate-authority-data")).decode()
        self.anonymous = ssl.create_default_context(cadata=authority)
        context = ssl.create_default_context(cadata=authority)
        certificate, key = field("client-certificate-data"), field("client-key-data")
        if certificate:
            with tempfile.TemporaryDirectory() as folder:
                paths = []
                for name, data in (("cert", certificate), ("key", key)):
                    paths.append(os.path.join(folder, name))
                    descriptor = os.open(paths[-1], os.O_WRONLY | os.O_CREAT, 0o600)
                    os.write(descriptor, base64.b64decode(data))
                    os.close(descriptor)
                context.load_cert_chain(*paths)
        self.context = context

    def send(self, method, path, body=None, content_type=None, accept="application/json", headers=None, anonymous=False, answered=None):
        """Status, headers and body of the answer. `answered`, an Event, is set as soon as the answer begins: a watch is open then."""
        context = self.anonymous if anonymous else self.context
        connection = http.client.HTTPSConnection(self.host, self.port, context=context, timeout=20 * PATIENCE)
        sent = {"User-Agent": self.user_agent, "Accept": accept}
        if self.token and not anonymous:
            sent["Authorization"] = f"Bearer {self.token}"
        if content_type:
            sent["Content-Type"] = content_type
        sent.update(headers or {})
        try:
            connection.request(method, path, body=body, headers=sent)
            response = connection.getresponse()
            if answered:
                answered.set()
            return response.status, response.headers, response.read()
        finally:
            connection.close()
