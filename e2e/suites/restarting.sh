#!/usr/bin/env bash
# restarting.sh COMMAND…: starts the command again when it ends, as a Deployment would, until it is told to end itself.
set -u
while true; do
    "$@" &
    child=$!
    trap 'kill "$child" 2>/dev/null; wait "$child"; exit' TERM INT
    wait "$child"
    echo "$(date +%T) ended with $?, started again"
    sleep 1
done
