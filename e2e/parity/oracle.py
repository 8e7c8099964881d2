"""Where the upstream oracle is: the program that UPSTREAM_ORACLE or --oracle names, or else built from e2e/upstream."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))

# How build.sh ends where Go or its modules are missing.
UNAVAILABLE = 3


def built(instrument):
    """Builds an instrument of e2e/build.sh. Ends the program where that fails; with 0 only where SKIP_WITHOUT_GO=1 allows that."""
    done = subprocess.run([ROOT / "e2e/build.sh", instrument])
    if done.returncode == UNAVAILABLE and os.environ.get("SKIP_WITHOUT_GO") == "1":
        print(f"skipped: {instrument} cannot be built here", file=sys.stderr)
        sys.exit(0)
    if done.returncode:
        sys.exit(f"{instrument} cannot be built here; SKIP_WITHOUT_GO=1 leaves out what needs Go")


def oracle(named):
    """The path of the oracle: the one that was named, or the one that is built."""
    if named:
        if not os.access(named, os.X_OK):
            sys.exit(f"the oracle {named} is not an executable file")
        return named
    built("oracle")
    return str(TARGET / "upstream/oracle")


def controlplane(named):
    """The path of the genuine control plane, likewise."""
    if named:
        return named
    built("controlplane")
    return str(TARGET / "controlplane/controlplane")
