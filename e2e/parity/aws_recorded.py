"""Our whole AWS provider at the recording proxy of the oracle: scenarios of launches, with what it asks AWS for."""

import json
import os
import subprocess
import time

# Prices that upstream is not told of in a scenario are kept from ours, too; moto has no Pricing.
UNTOLD = {"GetProducts": "AccessDeniedException", "DescribeSpotPriceHistory": "UnauthorizedOperation"}


def settled(text):
    """The scenario as the proxy is told it: with calls that fail, so that both know the same prices."""
    lines = text.splitlines()
    for index, line in enumerate(lines):
        if line.startswith("{") and '"Scenario"' in line:
            scenario = json.loads(line)
            told = {"DescribeSpotPriceHistory"} if scenario.get("spotPrices") else set()
            faults = [{"action": action, "code": code, "message": "kept from it", "status": 400} for action, code in UNTOLD.items() if action not in told]
            lines[index] = json.dumps(scenario | {"faults": scenario.get("faults", []) + faults})
    return "\n".join(lines) + "\n"


def record(oracle, program, moto, folder, name, text, at_once=False):
    """Runs one scenario, and writes what was asked for and what came of it for the provider's tests."""
    file, log = folder / f"played-{name}", folder / f"requests-{name}"
    file.write_text(settled(text))
    with log.open("w") as out:
        proxy = subprocess.Popen([oracle, "record", "--endpoint", moto, "--reset", "--cache", str(folder / "cache"), str(file)], stdout=out)
    try:
        while not (said := log.read_text()).endswith("\n"):
            if proxy.poll() is not None:
                raise SystemExit(f"the recording proxy does not start for {name}")
            time.sleep(0.05)
        endpoint = json.loads(said)["listening"]
        environment = dict(os.environ) | {"AWS_ENDPOINT_URL": endpoint, "AWS_REGION": "us-west-2", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}
        done = subprocess.run([program, str(file), *(["--at-once"] if at_once else [])], env=environment, capture_output=True, text=True, check=False, timeout=300)
    finally:
        proxy.terminate()
        proxy.wait()
    if done.returncode:
        raise SystemExit(f"our provider ended with {done.returncode} on {name}: {done.stderr.strip()}")
    requests = [json.loads(line) for line in log.read_text().splitlines()[1:]]
    launches = [json.loads(line) for line in done.stdout.splitlines()]
    (folder / f"recorded-{name}.yaml").write_text(json.dumps({"requests": requests, "launches": launches}))
