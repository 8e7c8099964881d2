#!/bin/sh
# An agent of k3s. The image has the program k3s.
set -eu
mkdir -p /etc/rancher/k3s
cat > /etc/rancher/k3s/config.yaml <<'END'
server: {{ cluster_endpoint }}
token: {{ bootstrap_token }}
node-name: {{ node_name }}
END
labels='{{ labels }}'
taints='{{ taints }}'
flags='{{ kubelet_flags }}'
set -- agent
for label in $(echo "$labels" | tr ',' ' '); do set -- "$@" --node-label "$label"; done
for taint in $(echo "$taints" | tr ',' ' '); do set -- "$@" --node-taint "$taint"; done
for flag in $flags; do set -- "$@" --kubelet-arg "${flag#--}"; done
nohup k3s "$@" > /var/log/k3s.log 2>&1 &
