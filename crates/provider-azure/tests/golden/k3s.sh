#!/bin/sh
# An agent of k3s. The image has the program k3s.
set -eu
mkdir -p /etc/rancher/k3s
cat > /etc/rancher/k3s/config.yaml <<'END'
server: https://api.example.com:6443
token: abcdef.0123456789abcdef
node-name: aks-claim
END
labels='karpenter.sh/nodepool=pool,team=a'
taints='special=yes:NoSchedule,karpenter.sh/unregistered=:NoExecute'
flags='--cloud-provider=external --provider-id=azure:///subscriptions/s/x --max-pods=50 --kube-reserved=cpu=140m,memory=2662Mi --eviction-hard=memory.available<750Mi --cpu-manager-policy=static --allowed-unsafe-sysctls=net.core.somaxconn --fail-swap-on=false'
set -- agent
for label in $(echo "$labels" | tr ',' ' '); do set -- "$@" --node-label "$label"; done
for taint in $(echo "$taints" | tr ',' ' '); do set -- "$@" --node-taint "$taint"; done
for flag in $flags; do set -- "$@" --kubelet-arg "${flag#--}"; done
nohup k3s "$@" > /var/log/k3s.log 2>&1 &
