"""A wire that can be cut: it stands between a browser and a server, and hands on what each says."""

import contextlib
import socket
import threading


class Relay:
    """Listens on a port of its own until the end of the block."""

    def __init__(self, port):
        self.to, self.open = ("127.0.0.1", port), []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                try:
                    server = socket.create_connection(self.to)
                except OSError:
                    client.close()
                    continue
                self.open += [client, server]
                for ends in [(client, server), (server, client)]:
                    threading.Thread(target=self._hand_on, args=ends, daemon=True).start()

    @staticmethod
    def _hand_on(source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self):
        """Ends all connections in the middle of whatever they say; returns how many there were."""
        ends, self.open = self.open, []
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        return len(ends) // 2

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()
        self.cut()
