# Python with gRPC's packages, which compile the protocol and run the example in Python; to be sourced. Sets venv, the environment.
# Ends the script with 3, and says why, where they cannot be had.

venv=${target:?}/grpc-venv
grpc=1.85.1
pinned=("grpcio==$grpc" "grpcio-tools==$grpc")
. e2e/packages.sh
has_packages "$venv" "${pinned[@]}" || {
    python3 -m venv "$venv" && "$venv/bin/pip" install --quiet --disable-pip-version-check "${pinned[@]}"
} || { echo "skipped: grpcio and grpcio-tools $grpc cannot be installed (Python 3.10 or later)" >&2; exit 3; }
