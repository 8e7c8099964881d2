#!/usr/bin/env python3
"""The root of a release's image for this machine: image_root.py IMAGE.tar FOLDER. Checks the digests, sizes, user and entry point of the OCI layout on the way. Needs
nothing but Python 3.12 or later."""

import hashlib
import json
import os
import sys
import tarfile
import tempfile

# All layers, compressed.
MOST_BYTES = 30 * 2**20


def blob(layout, descriptor):
    path = os.path.join(layout, "blobs", *descriptor["digest"].split(":"))
    with open(path, "rb") as file:
        data = file.read()
    assert "sha256:" + hashlib.sha256(data).hexdigest() == descriptor["digest"], descriptor
    assert len(data) == descriptor["size"], descriptor
    return path, data


def main():
    image, root = sys.argv[1:]
    with tempfile.TemporaryDirectory() as layout:
        tarfile.open(image).extractall(layout, filter="data")
        with open(f"{layout}/index.json", encoding="utf-8") as file:
            index = json.loads(blob(layout, json.load(file)["manifests"][0])[1])
        machine = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
        own = next(one for one in index["manifests"] if one["platform"]["architecture"] == machine)
        manifest = json.loads(blob(layout, own)[1])
        config = json.loads(blob(layout, manifest["config"])[1])["config"]
        assert config["User"] == "65532:65532" and config["Entrypoint"] == ["/spokeshave"], config
        size = 0
        for layer in manifest["layers"]:
            path, data = blob(layout, layer)
            size += len(data)
            tarfile.open(path).extractall(root, filter="fully_trusted")
        print(f"image for {machine}: {size / 2**20:.1f} MiB compressed")
        assert size < MOST_BYTES, "an image is at most 30 MiB"


if __name__ == "__main__":
    main()
