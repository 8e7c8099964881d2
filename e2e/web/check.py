"""The page in a genuine browser: what needs one to be seen. Needs Chromium and the package `playwright` (its own browser is not used).

    check.py [NAME…]              the checks of these names, by default all
    check.py steady               those that a busy machine does not fail
    check.py speed                the others

Waits only bound failures; PATIENCE (1) multiplies them.
"""

import importlib
import sys
import time
import traceback

from browser import CHECKS, OF_SPEED
from cluster import CHROMIUM
from playwright.sync_api import sync_playwright

SUBJECTS = ["reading", "switches", "keyboard", "redraws", "looks", "following", "outages", "record", "large"]


def main():
    if not CHROMIUM:
        print("SKIPPED: there is no Chromium (Debian's package chromium)")
        return
    for subject in SUBJECTS:
        importlib.import_module(f"checks.{subject}")
    sets = {"steady": [name for name in CHECKS if name not in OF_SPEED], "speed": OF_SPEED}
    wanted = [name for word in sys.argv[1:] for name in sets.get(word, [word])] or list(CHECKS)
    unknown = [name for name in wanted if name not in CHECKS]
    if unknown:
        sys.exit(f"there is no check {', '.join(unknown)}; there are {', '.join([*sets, *CHECKS])}")
    failed, begun = 0, time.monotonic()
    with sync_playwright() as playwright:
        for name in wanted:
            started = time.monotonic()
            try:
                CHECKS[name](playwright)
                print(f"ok      {name} ({time.monotonic() - started:.0f} s)", flush=True)
            except Exception:
                failed += 1
                print(f"FAILED  {name} ({time.monotonic() - started:.0f} s)", flush=True)
                traceback.print_exc()
    print(f"{len(wanted) - failed} passed, {failed} failed, in {time.monotonic() - begun:.0f} s")
    sys.exit(1 if failed else 0)


main()
