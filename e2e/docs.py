#!/usr/bin/env python3
"""Runs what the documents say: `just docs-check`.

    docs.py --spokeshave PROGRAM [--bless] [PAGE…]

In docs/howto every YAML block whose first line is `# NAME.yaml` is a file, and every block `console` is run on them: `$ spokeshave …` with what it prints below.
--bless writes what it prints. In all documents each `spokeshave COMMAND --flag` of a shell block must exist, each recipe of `just`, and each chart and file that
`helm` and `spokeshave -f examples/…` name. Needs nothing but Python 3.9 or later.
"""

import argparse
import functools
import os
import re
import shlex
import subprocess
import sys
import tempfile

from event_meanings import EVENTS

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
# What a reader sees on a wide terminal.
ENVIRONMENT = {**os.environ, "COLUMNS": "100"}
LEAST_PAGES = 20
WRITTEN = "Written by `just docs-check --bless` from the code."
# Reasons of conditions only, in a file that sets those of events in the same way: while the feature gate is off, nothing is launched that could fail.
NO_EVENT = {"StaticCapacityDisabled"}


def run(program, line, folder):
    arguments = shlex.split(line, comments=True)
    done = subprocess.run([program, *arguments[1:]], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    said = done.stdout if done.stdout else done.stderr
    return done.returncode, said.rstrip("\n") + "\n"


def transcript(program, block, folder):
    """The block as it is when its commands are run; what is wrong with the commands."""
    out, faults = [], []
    for line in block.splitlines():
        if not line.startswith("$ "):
            continue
        if not line.startswith("$ spokeshave "):
            faults.append(f"not a command of ours: {line}")
            continue
        status, said = run(program, line[2:], folder)
        if status not in (0, 3):
            faults.append(f"{line}: status {status}: {said}")
        out.append(f"{line}\n{said}")
    if not out:
        faults.append("a console block without a command")
    return "\n".join(out), faults


def page(program, path, bless):
    text = open(path, encoding="utf-8").read()
    faults, files, consoles = [], 0, 0
    answer = re.search(r"\A# [^\n]*\n\n(.+?)\n\n", text, re.S)
    if not answer or answer.group(1).lstrip().startswith(("```", "|", "-", "#")):
        faults.append("does not begin with an answer")
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(os.path.join(os.path.realpath(ROOT), "examples"), os.path.join(folder, "examples"))

        def replaced(found):
            nonlocal files, consoles
            kind, body = found.group(1), found.group(2)
            name = re.match(r"# ([\w.-]+\.yaml)\n", body)
            if kind == "yaml" and name:
                files += 1
                with open(os.path.join(folder, name.group(1)), "w", encoding="utf-8") as out:
                    out.write(body)
            if kind != "console":
                return found.group(0)
            consoles += 1
            now, wrong = transcript(program, body, folder)
            faults.extend(wrong)
            if now != body and not bless:
                faults.append(f"prints something else now (just docs-check --bless):\n{now}")
            return f"```console\n{now}```" if bless and not wrong else found.group(0)

        fresh = BLOCK.sub(replaced, text)
    if not consoles:
        faults.append("has no command that is run")
    if fresh != text:
        with open(path, "w", encoding="utf-8") as out:
            out.write(fresh)
    return faults


def constants(path):
    """Texts that are constants of the code, with what the code says of them."""
    text = open(os.path.join(ROOT, path), encoding="utf-8").read()
    found = re.findall(r'((?:^/// .*\n)+)pub const (\w+): &str\s*=\s*"([^"]+)";', text, re.M)
    return [(name, value, " ".join(line[4:] for line in words.splitlines()).replace("|", "\\|")) for words, name, value in found]


def table(head, rows):
    return "\n".join([f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(row)} |" for row in rows)])


def objects_page():
    conditions = [(f"`{value}`", words) for _, value, words in constants("crates/api/src/conditions.rs")]
    keys = [(f"`{value}`", words) for _, value, words in constants("crates/api/src/labels.rs") if "/" in value]
    keys += [(f"`{value}`", words) for _, value, words in constants("crates/provider-kwok/src/keys.rs") if "/" in value and not value.endswith("/")]
    if len(conditions) < 20 or len(keys) < 35:
        raise SystemExit(f"only {len(conditions)} conditions and {len(keys)} keys are found in the code")
    return (f"# Conditions, labels, annotations, taints\n\n{WRITTEN}\n\n## Conditions\n\nThe kind is named before the colon; `Ready` summarizes the others.\n\n"
            f"{table(('Condition', 'Means'), conditions)}\n\n## Labels, annotations, taints and finalizers\n\n{table(('Key', 'Means'), keys)}\n")


def event_kinds(text):
    """Types and reasons of the events that a file makes, by the calls: they stand side by side. A reason may be a constant of the file."""
    named = dict(re.findall(r'const (\w+): &str =\s*"([A-Z]\w+)";', text))
    for kind, reason, constant in re.findall(r'EventType::(Normal|Warning),\s*(?:"([A-Z]\w+)"|([A-Z_]+)\b)', text):
        if reason or constant in named:
            yield kind, reason or named[constant]
    # The reason is a field, which the file sets to constants.
    for kind in re.findall(r"EventType::(Normal|Warning),\s*self\.reason\b", text):
        reasons = {named[constant] for constant in re.findall(r"\breason: ([A-Z_]+),", text)}
        yield from ((kind, reason) for reason in reasons - NO_EVENT)
    yield from (("Warning", reason) for reason in re.findall(r'\bwarning\(\s*\w+\(\w+\),\s*"([A-Z]\w+)"', text))
    # Notices of a cloud provider are recorded as events, too.
    if "notices::of_" in text:
        for is_warning, reason in re.findall(r'(?:notices::of_\w+\(\s*&?[\w.]+|\(\w+),\s*(true|false),\s*"([A-Z]\w+)"', text):
            yield "Warning" if is_warning == "true" else "Normal", reason
        for reason in re.findall(r'notices::of_claim\(\s*[\w.]+,\s*"([A-Z]\w+)"', text):
            yield "Warning", reason


def events_page():
    """All events: their reasons and types from the code, their meaning from `event_meanings.py`."""
    found = set()
    for folder in ("plan", "controllers", "audit", "aws-cloud", "provider-kwok"):
        for base, _, files in os.walk(os.path.join(ROOT, "crates", folder, "src")):
            for file in sorted(files):
                text = open(os.path.join(base, file), encoding="utf-8").read().split("#[cfg(test)]\nmod tests {")[0]
                found.update((reason, kind) for kind, reason in event_kinds(text))
    reasons = {reason for reason, _ in found}
    if reasons != set(EVENTS):
        raise SystemExit(f"e2e/event_meanings.py lacks {sorted(reasons - set(EVENTS))} and has in excess {sorted(set(EVENTS) - reasons)}")
    rows = [(f"`{reason}`", kind, EVENTS[reason]) for reason, kind in sorted(found)]
    return (f"# Events\n\n{WRITTEN}\n\nTheir source is `karpenter`: `kubectl get events -A --field-selector source=karpenter`. Repeats within a few minutes are suppressed.\n\n"
            f"{table(('Reason', 'Type', 'Meaning'), rows)}\n\n"
            "When a condition of a NodeClaim, NodePool, Node or CapacityBuffer changes its status, the object also gets an event of type Normal whose reason is the "
            "condition, such as `Launched`.\n")


@functools.lru_cache(None)
def help_of(program, command):
    done = subprocess.run([program, *command, "--help"], env=ENVIRONMENT, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None


def commands(program, text):
    """What is wrong with the shell blocks of a document."""
    recipes = set(re.findall(r"(?m)^([a-z][\w-]*)(?: [^:=\n]*)?:(?!=)", open(os.path.join(ROOT, "justfile"), encoding="utf-8").read()))
    for kind, body in BLOCK.findall(text):
        if kind not in ("sh", "console", "bash"):
            continue
        for line in re.sub(r"\\\n\s*", " ", body).splitlines():
            line = line.split(" #")[0].lstrip("$ ").strip()
            for part in re.split(r"\|\||&&|[|;]", line):
                words = part.split()
                while words and re.match(r"^[A-Z_]+=", words[0]):
                    words.pop(0)
                if words[:2] == ["kubectl", "spokeshave"]:
                    words.pop(0)
                if len(words) > 1 and words[0] == "just" and not words[1].startswith("-") and words[1] not in recipes:
                    yield f"no recipe {words[1]}: {line}"
                if words[:1] == ["helm"]:
                    yield from (f"no {word}: {line}" for word in words if word.startswith("charts/") and not os.path.exists(os.path.join(ROOT, word)))
                if words[:1] == ["spokeshave"] and len(words) > 1 and not words[1].startswith(("-", "[", "…", "COMMAND")):
                    shown = help_of(program, (words[1],))
                    if shown is None:
                        yield f"no command {words[1]}: {line}"
                        continue
                    flags = [word.split("=")[0] for word in words if word.startswith("--")]
                    yield from (f"{words[1]} has no {flag}: {line}" for flag in flags if not re.search(rf"{re.escape(flag)}(?![\w-])", shown))
                    yield from (f"no {word}: {line}" for word in words if word.startswith("examples/") and not os.path.exists(os.path.join(ROOT, word)))


def documents():
    yield os.path.join(ROOT, "README.md")
    for folder, _, files in os.walk(os.path.join(ROOT, "docs")):
        yield from (os.path.join(folder, file) for file in sorted(files) if file.endswith(".md"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--spokeshave", required=True)
    parser.add_argument("--bless", action="store_true")
    parser.add_argument("pages", nargs="*")
    arguments = parser.parse_args()
    program, wrong = os.path.abspath(arguments.spokeshave), []
    folder = os.path.join(ROOT, "docs/howto")
    pages = sorted(file for file in os.listdir(folder) if file.endswith(".md"))
    summary = open(os.path.join(ROOT, "docs/SUMMARY.md"), encoding="utf-8").read()
    for file in pages:
        if arguments.pages and file not in arguments.pages:
            continue
        faults = page(program, os.path.join(folder, file), arguments.bless)
        if f"(howto/{file})" not in summary:
            faults.append("is not in docs/SUMMARY.md")
        wrong += [f"docs/howto/{file}: {fault}" for fault in faults]
    for name, fresh in (("objects.md", objects_page()), ("events.md", events_page())):
        path = os.path.join(ROOT, "docs/reference", name)
        if arguments.bless:
            with open(path, "w", encoding="utf-8") as out:
                out.write(fresh)
        elif not os.path.exists(path) or open(path, encoding="utf-8").read() != fresh:
            wrong.append(f"docs/reference/{name} is old (just docs-check --bless)")
    if len(pages) < LEAST_PAGES:
        wrong.append(f"docs/howto has {len(pages)} pages; there were {LEAST_PAGES}")
    looked_at = 0
    for path in documents():
        looked_at += 1
        text = open(path, encoding="utf-8").read()
        wrong += [f"{os.path.relpath(path, ROOT)}: {fault}" for fault in commands(program, text)]
    # The check itself sees what is wrong.
    made_up = "```sh\njust no-such-recipe\nspokeshave plan --no-such-flag -f x.yaml\nspokeshave plann\nhelm install a charts/nothing\n```\n"
    if len(list(commands(program, made_up))) != 4:
        wrong.append(f"the check finds other faults in made-up commands: {list(commands(program, made_up))}")
    for one in wrong:
        print(f"FAIL {one}")
    print(f"{len(pages)} how-to pages run, the commands of {looked_at} documents looked at, {len(wrong)} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
