#!/usr/bin/env python3
"""Looks at the built book: book.py FOLDER. Every link of every page leads to a page, a picture or an anchor that is there. Links to other sites are not followed.
Needs nothing but Python 3.9 or later."""

import html.parser
import os
import sys
import urllib.parse

LEAST_PAGES = 40


class Page(html.parser.HTMLParser):
    """The links and anchors of a page."""

    def __init__(self, path):
        super().__init__()
        self.links, self.anchors = [], set()
        with open(path, encoding="utf-8") as file:
            self.feed(file.read())

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value)
            elif name in ("href", "src") and value:
                self.links.append(value)


def faults(folder, pages):
    for path, page in sorted(pages.items()):
        for link in page.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = os.path.normpath(os.path.join(os.path.dirname(path), urllib.parse.unquote(parts.path))) if parts.path else path
            # 404.html is served at any depth, and its links begin at the site's root.
            if not os.path.exists(os.path.join(folder, target.lstrip("/"))):
                yield f"{path}: {link}: no such file"
            elif parts.fragment and target in pages and urllib.parse.unquote(parts.fragment) not in pages[target].anchors:
                yield f"{path}: {link}: no such heading"


def main():
    folder = sys.argv[1]
    pages = {}
    for root, _, files in os.walk(folder):
        for name in files:
            if name.endswith(".html"):
                path = os.path.relpath(os.path.join(root, name), folder)
                pages[path] = Page(os.path.join(folder, path))
    found = list(faults(folder, pages))
    for fault in found:
        print(f"FAULT: {fault}")
    print(f"{len(pages)} pages, {sum(len(page.links) for page in pages.values())} links, {len(found)} faults")
    sys.exit(bool(found) or len(pages) < LEAST_PAGES)


if __name__ == "__main__":
    main()
