#!/usr/bin/env bash
# Builds the instruments that are written in Go, from the sources beside this script, into target/:
#
#   e2e/build.sh controlplane   target/controlplane/controlplane   a genuine Kubernetes control plane (minutes the first time)
#   e2e/build.sh kubelet        target/tools/kubelet            a genuine kubelet, and a container runtime that runs nothing
#   e2e/build.sh oracle         target/upstream/oracle             upstream Karpenter's decisions on a state in a file
#   e2e/build.sh aws-oracle     target/tools/aws-oracle         decisions of upstream's AWS provider
#   e2e/build.sh suites         target/suites/bin/…                upstream's end-to-end suites
#   e2e/build.sh operator       target/suites/bin/upstream-operator   upstream's operator with its kwok provider
#   e2e/build.sh helm | helm4 | promtool | actionlint   target/tools/…     what checks charts, rules and workflows
#   e2e/build.sh boards         target/tools/boards             scrapes /metrics and answers the queries of boards with Prometheus's engine
#
# Ends with 3, and says why, where Go is missing or too old, or its modules cannot be fetched; with another status where the sources or their go.mod are wrong.
# Kubernetes and Karpenter are fetched as Go modules and never copied into the repository. GOFLAGS and GOPROXY are Go's own.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
target=${CARGO_TARGET_DIR:-$here/../target}
mkdir -p "$target"
target=$(cd "$target" && pwd)
export GOTOOLCHAIN=${GOTOOLCHAIN:-local}

unavailable() {
    echo "$1" >&2
    exit 3
}

# shellcheck source=e2e/go.sh
. "$here/go.sh"

# enter FOLDER PACKAGE…: goes to the sources, with the modules fetched that these packages need.
enter() {
    command -v go >/dev/null || unavailable "no Go: building $what needs Go 1.26.6 or later (https://go.dev/dl)"
    ! is_go_too_old || unavailable "Go is too old: building $what needs Go 1.26.6 or later (https://go.dev/dl)"
    cd "$here/$1"
    shift
    local said
    said=$(go list -deps -test "$@" 2>&1 >/dev/null) && return
    ! grep -qE "$not_to_be_had" <<<"$said" || unavailable "the Go modules of $what cannot be had: $(tail -n 1 <<<"$said")"
    printf 'what %s is built from is wrong:\n%s\n' "$what" "$said" >&2
    exit 1
}

# first FILE: says that it takes long, where it does.
first() {
    [ -x "$1" ] || echo "building $what (minutes the first time, seconds later)" >&2
}

what=${1:-}
case $what in
controlplane)
    enter controlplane .
    version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
    IFS=. read -r major minor _ <<<"${version#v}"
    package=k8s.io/component-base/version
    first "$target/controlplane/controlplane"
    go build -o "$target/controlplane/controlplane" \
        -ldflags "-s -w -X $package.gitVersion=$version -X $package.gitMajor=$major -X $package.gitMinor=$minor" .
    ;;
kubelet)
    enter kubelet .
    version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
    IFS=. read -r major minor _ <<<"${version#v}"
    package=k8s.io/component-base/version
    first "$target/tools/kubelet"
    mkdir -p "$target/tools"
    go build -o "$target/tools/kubelet" \
        -ldflags "-s -w -X $package.gitVersion=$version -X $package.gitMajor=$major -X $package.gitMinor=$minor" .
    ;;
oracle)
    enter upstream .
    first "$target/upstream/oracle"
    go build -o "$target/upstream/oracle" .
    ;;
aws-oracle)
    enter aws .
    first "$target/tools/aws-oracle"
    mkdir -p "$target/tools"
    go build -p 1 -o "$target/tools/aws-oracle" .
    ;;
suites)
    read -r -a suites <<<"${SUITES:-regression}"
    enter suites "${suites[@]/#/sigs.k8s.io/karpenter/test/suites/}"
    first "$target/suites/bin/${suites[0]}.test"
    for suite in "${suites[@]}"; do
        go test -c -vet=off -o "$target/suites/bin/$suite.test" "sigs.k8s.io/karpenter/test/suites/$suite"
    done
    ;;
operator)
    enter suites sigs.k8s.io/karpenter/kwok
    first "$target/suites/bin/upstream-operator"
    go build -o "$target/suites/bin/upstream-operator" sigs.k8s.io/karpenter/kwok
    ;;
boards)
    enter tools/boards .
    first "$target/tools/boards"
    mkdir -p "$target/tools"
    go build -o "$target/tools/boards" -ldflags "-s -w" .
    ;;
helm | helm4 | promtool | actionlint)
    package=$(sed -n 's/^import _ "\(.*\)"$/\1/p' "$here/tools/$what/tools.go")
    enter "tools/$what" "$package"
    first "$target/tools/$what"
    go build -o "$target/tools/$what" -ldflags "-s -w" "$package"
    ;;
*)
    echo "usage: e2e/build.sh controlplane | kubelet | oracle | aws-oracle | suites | operator | helm | helm4 | promtool | actionlint | boards" >&2
    exit 2
    ;;
esac
