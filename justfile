# Everything that CI runs and developers repeat. `just` alone lists the recipes.

set positional-arguments

# The program as images and releases have it, with the calls to AWS.
build := "cargo build --release -p spokeshave --features aws"

# Options of cargo for what is built without `--release`; CI has `.ci/cargo.toml` there.
cargo_options := env("CARGO_OPTIONS", "")

default:
    @just --list --unsorted

# The checks to run before a push, one after the other; CI (.ci/run) runs more.
ci: fmt-check tidy lint-and-test smoke (soak "100" "--first-seed" "1") (soak "100") docs-check ci-charts

# Charts, rules, boards and the book (Go, Python); SKIP_WITHOUT_GO=1 skips what needs Go.
ci-charts: chart-check rules-check board-check board-queries book

# Formatting, without changing files.
fmt-check:
    cargo fmt --all --check

# Format everything.
fmt:
    cargo fmt --all

# Lints, warnings are errors.
clippy:
    cargo clippy --locked --workspace --all-targets -- -D warnings

# Lints and the README's test command in one build: Clippy compiles our own crates, and dependencies are compiled once for both. As `clippy` and `test` one
# after the other, in half of the time; a build with Clippy is kept apart from one without.
lint-and-test:
    #!/usr/bin/env bash
    set -euo pipefail
    export CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings
    # CI's configuration names Clippy itself.
    [ -n "{{cargo_options}}" ] || export RUSTC_WORKSPACE_WRAPPER=clippy-driver
    cargo {{cargo_options}} build --locked --workspace --all-targets
    cargo {{cargo_options}} test --workspace
    # A build for production clusters has no embedded cluster and none of its dependencies, and calls AWS. Its unit tests leave the program alone.
    cargo {{cargo_options}} test --locked -p spokeshave --no-default-features --features aws --bin spokeshave

# Dependency rules, licences, house rules.
tidy:
    cargo xtask tidy

# The README's test command.
test:
    cargo test --workspace

# The README's first command: it ends when the story is told, and fails when the demo cannot go on, a scene stands still, or the time is over before.
smoke:
    cargo {{cargo_options}} run -- up --demo --speed 20 --exit-after 300s

# Runs N seeds of simulated cluster life, with the invariants checked at every step: fresh ones, derived from the commit (`--fresh`: random), unless
# `--first-seed` names others. A failing seed prints the command that replays it.
soak count="20" *options:
    cargo run --release -p spokeshave-sim --example soak -- {{count}} --commit "$(git describe --always --dirty --abbrev=12 --exclude '*' 2>/dev/null || echo unknown)" {{options}}

# Cost and moves of consolidation when workloads shrink, on virtual time; fails when a figure is worse than in crates/sim/figures.json (`--write`: writes
# them there; give scenario names to run only those).
settle *options:
    cargo run --release -p spokeshave-sim --example settle -- "$@"

# Cost and disruption of the fast engine's scenarios (e2e/simulations); fails when a figure is worse than in e2e/simulations/figures.json beyond its interval
# (`--write`: writes them there; give scenario names to run only those). A minute of processor time.
simulations *options:
    {{build}}
    python3 -B e2e/simulations.py "$@"

# Recordings of every format that `simulate` reads, random ones by seed, as `simulate --check` counts them and as an independent reader does; shuffled and damaged
# ones, too (`--seeds N`, `--first-seed S`, `--keep DIR`; give names of formats to read only those).
simulations-readers *options:
    {{build}}
    python3 -B e2e/simulations/readers.py "$@"

# What users have reported of autoscalers, lived again by models and by ours (e2e/simulations/stories); fails when a model does not show its pain or ours does,
# or when the table in docs/simulate-engine.md is another (`--write`: writes it; give names of stories to run only those). A minute of processor time.
stories *options:
    {{build}}
    python3 -B e2e/stories.py "$@"

# The two engines of `simulate` on the scenarios of crates/simulate-full/scenarios, seed by seed: commands in order, cost, evictions (`--seeds N`, `--logs DIR`;
# give scenario files to run only those). Half an hour of processor time.
engines *options:
    cargo run --release -p spokeshave-simulate-full --example engines -- "$@"

# Random worlds in the fast engine of `simulate`, each judged by an independent checker of its event log (`--first-seed S`, `--seconds N`). A seed that breaks
# a promise prints the command that lives it again; `--log FILE` writes the event log of a single one.
engine-seeds count="200" *options:
    cargo run --release -p spokeshave-sim --example engine-seeds -- {{count}} {{options}}

# Launches, moves and cost of churning clusters with and without a DisruptionPolicy, on virtual time: the table of docs/policies.md. Fails when a figure is
# worse than in crates/sim/policies.json (`--write`: writes figures and table; give case names to run only those).
policies-table *options:
    cargo run --release -p spokeshave-sim --example policies -- "$@"

# Every disruption scenario with the operator killed after every single write (cargo test runs every seventh, CI another seventh with each commit).
deaths:
    EVERY_WRITE=1 cargo test -p spokeshave-sim --test it disruption_deaths::

# Kills the operator at every write of every scenario (or of one): the final state is the same, and nothing is leaked.
kills *options:
    cargo run --release -p spokeshave-sim --example kills -- {{options}}

# Benchmarks of docs/benchmarks.md (not checked by CI).
bench:
    cargo bench -p spokeshave-apiserver
    cargo bench -p spokeshave-schedule
    cargo bench -p spokeshave-plan

# Decisions on generated clusters against upstream's own code (e2e/upstream, built with Go): provisioning, then disruption.
parity worlds="250":
    {{build}}
    python3 -B e2e/parity/provisioning.py --worlds {{worlds}}
    python3 -B e2e/parity/disruption.py --worlds {{worlds}}

# Decisions of the AWS provider against upstream's own provider (e2e/aws, built with Go), on committed and generated cases; `--write` writes the table of
# docs/aws.md.
parity-aws *options:
    e2e/parity-aws.sh "$@"

# Upstream's end-to-end suites against Spokeshave: all specs (70 minutes), or those that match; options of e2e/suites/run.py.
upstream-suites *specs:
    {{build}}
    e2e/suites/run.py "$@"

# Ten to twelve minutes of them, as CI does; specs that do not fit in the time are listed as not run.
upstream-suites-quick:
    {{build}}
    e2e/suites/run.py --selection e2e/suites/selection.txt --seconds ${SUITES_SECONDS:-720}

# The scenarios of upstream's performance suite with Spokeshave and with upstream's operator, three times each (hours), as a table; options of e2e/suites/performance.py.
performance-beside-upstream *options:
    {{build}}
    e2e/suites/performance.py "$@"

# The same end-to-end scenario on a genuine kube-apiserver, scheduler and controller-manager.
e2e-real:
    {{build}}
    e2e/real.sh

# A thousand nodes on a genuine kube-apiserver: how soon NodeClaims follow pods, and what the operator costs while only kubelets heartbeat. Twenty minutes.
at-scale *options:
    {{build}}
    cargo build --release -p spokeshave-sim --example kubelets
    e2e/at_scale.sh {{options}}

# AWS, the life of a Deployment: the shipped operator against moto, on the embedded API server; then with the provider in a process of its own. Installs moto
# in target/.
e2e-aws:
    {{build}}
    e2e/aws.sh
    e2e/aws.sh --apart

# Providers as processes of their own, of other makes: the examples in Python and Go keep the promises of the protocol.
e2e-grpc:
    {{build}}
    e2e/grpc.sh

# A genuine kubelet as the machine of a provider in a process of its own: it joins a genuine control plane, runs pods, is drained and ends. Needs root, and Go.
e2e-kubelet:
    {{build}}
    e2e/kubelet.sh

# Regenerates the Rust code of the provider protocol.
proto:
    cargo run --manifest-path e2e/grpc/generate/Cargo.toml --target-dir target/generate -- crates/provider-grpc/proto/provider.proto crates/provider-grpc/proto/provider.rs.in

# Every call to AWS that moto answers, over HTTP: encodings, pages, errors, rehearsals. Installs moto in target/.
e2e-aws-wire:
    cargo {{cargo_options}} build -p spokeshave-aws-http --example wire
    e2e/moto.sh target/debug/examples/wire

# Azure: node auto-provisioning on `up --cloud azure`, and the shipped operator against our Azure over HTTP.
e2e-azure:
    cargo {{cargo_options}} build -p spokeshave-azure-simulated --example arm
    {{build}}
    e2e/azure_rehearsal.sh
    e2e/azure_operator.sh

# Microsoft's Python SDK reads what the provider wrote to our Azure, and the provider what it wrote. Installs the SDK in target/.
e2e-azure-sdk:
    cargo {{cargo_options}} build -p spokeshave-azure-simulated --example arm
    e2e/azure.sh

# Ends of nodes on a genuine kube-apiserver: budgets, deadlines, finalizers, volumes, garbage collection, hand-over of leadership.
e2e-real-lifecycle:
    {{build}}
    e2e/real-lifecycle.sh

# One list of requests to our API server and to a genuine one: every difference must be on the committed list.
conformance-real:
    {{build}}
    e2e/conformance.sh

# A user's walk with plain kubectl through `spokeshave up`.
e2e-kubectl:
    {{build}}
    e2e/kubectl.sh

# The client `kubernetes` from PyPI on `spokeshave up --bare`.
e2e-python:
    {{build}}
    e2e/python-client.sh

# The page, and the report of a simulation, in a genuine Chromium; skipped where there is none. `steady`: what no busy machine is to fail, `speed`: the others; `pictures` redraws docs/images.
e2e-web *checks:
    {{build}}
    e2e/web.sh "$@"

# The charts without a cluster: lint, what each set of values in e2e/charts/values renders (BLESS=1 rewrites it), values that are rejected. Helm is built when needed (Go).
chart-check:
    e2e/charts/check.sh

# Helm installs the charts on a genuine kube-apiserver, and the operator runs with the chart's permissions: no request is denied, no permission is unused.
chart-real:
    {{build}}
    e2e/charts/real.sh

# What goes wrong around an installation, on a genuine kube-apiserver: definitions, a second install, an old leader, an upgrade in the middle of a command.
chart-faults:
    {{build}}
    STORY=faults e2e/charts/real.sh

# Karpenter's own operator makes a cluster on a genuine kube-apiserver; Spokeshave looks on, takes over in the middle of a consolidation, and gives it back.
take-over:
    {{build}}
    cargo build --release -p spokeshave-sim --example kubelets
    e2e/take_over.sh

# The alerts: their syntax, and what they say about made-up series; the queries of boards: their syntax. promtool is built when needed (Go).
rules-check:
    #!/usr/bin/env bash
    set -euo pipefail
    . e2e/instruments.sh
    need promtool
    "${CARGO_TARGET_DIR:-target}/tools/promtool" check rules charts/spokeshave/rules/alerts.yaml
    "${CARGO_TARGET_DIR:-target}/tools/promtool" test rules charts/spokeshave/rules/alerts.test.yaml
    python3 -B e2e/charts/boards.py >"${CARGO_TARGET_DIR:-target}/tools/boards.rules.json"
    "${CARGO_TARGET_DIR:-target}/tools/promtool" check rules "${CARGO_TARGET_DIR:-target}/tools/boards.rules.json"

# The boards by Grafana's own schema, which comes from the package index (Python).
board-check:
    e2e/charts/boards.sh

# Every query of our boards and of Karpenter's published ones, asked of what a living operator's /metrics has said, by Prometheus's own engine (Go). Three minutes.
# `--picture docs/images/board.svg` draws the picture of docs/operations.md.
board-queries *options:
    {{build}}
    e2e/charts/boards_live.sh "$@"

# README's "Install", typed on a genuine kube-apiserver, with the program of the image of `just release` as the Deployment's container.
install-check:
    release/install-check.sh

# The workflow files. actionlint is built when needed (Go).
workflow-check:
    e2e/build.sh actionlint
    "${CARGO_TARGET_DIR:-target}/tools/actionlint" .github/workflows/*.yaml

# A static binary with manual pages, completions, licences and bill of materials, the image as an OCI layout, charts, krew's manifest and sums.
# A release of this machine's architecture in target/dist, packed twice, which must be the same bytes.
release:
    release/build.sh --check

# A release built and packed twice, the second time in a clone elsewhere; every byte is compared. Twenty minutes on two cores.
release-twice:
    release/build.sh --twice

# The image of a release runs as its user from its own root (needs root, no container daemon).
image-check:
    release/image-check.sh

# What the documents say is run: the how-to pages' commands, flags and recipes that documents name, pictures, references from the code (`--bless` writes them).
docs-check *options:
    cargo build -p spokeshave
    python3 -B e2e/ways.py {{ if options =~ "--bless" { "" } else { "--check" } }}
    python3 -B e2e/docs.py --spokeshave "${CARGO_TARGET_DIR:-target}/debug/spokeshave" {{options}}

# The documentation as a site in target/book, every link of it followed. mdbook is installed into target/tools when needed (a minute).
book:
    #!/usr/bin/env bash
    set -euo pipefail
    tools=${CARGO_TARGET_DIR:-target}/tools/mdbook
    [ -x "$tools/bin/mdbook" ] || RUSTC_WORKSPACE_WRAPPER= cargo install mdbook --version 0.5.4 --no-default-features --locked --quiet --root "$tools" --target-dir "$tools/build"
    rm -rf "$tools/build"
    "$tools/bin/mdbook" build docs --dest-dir "$(realpath -m "${CARGO_TARGET_DIR:-target}/book")"
    python3 -B e2e/book.py "${CARGO_TARGET_DIR:-target}/book"
