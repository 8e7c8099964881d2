#!/bin/sh
# A node that joins with kubeadm. The image has containerd, kubeadm and kubelet 1.34.1.
set -eu
cat > /run/cluster.conf <<'END'
apiVersion: v1
kind: Config
clusters: [{name: "", cluster: {server: "https://api.example.com:6443", certificate-authority-data: "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg=="}}]
END
cat > /etc/default/kubelet <<'END'
KUBELET_EXTRA_ARGS=--node-labels=karpenter.sh/nodepool=pool,team=a --cloud-provider=external --provider-id=azure:///subscriptions/s/x --max-pods=50 --kube-reserved=cpu=140m,memory=2662Mi --eviction-hard=memory.available<750Mi --cpu-manager-policy=static --allowed-unsafe-sysctls=net.core.somaxconn --fail-swap-on=false
END
cat > /run/join.yaml <<'END'
apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
nodeRegistration:
  name: aks-claim
  taints: [{"effect":"NoSchedule","key":"special","value":"yes"},{"effect":"NoExecute","key":"karpenter.sh/unregistered"}]
discovery:
  file: {kubeConfigPath: /run/cluster.conf}
  tlsBootstrapToken: abcdef.0123456789abcdef
END
kubeadm join --config /run/join.yaml
