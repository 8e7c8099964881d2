#!/bin/sh
# A node that joins with kubeadm. The image has containerd, kubeadm and kubelet {{ kubernetes_version }}.
set -eu
cat > /run/cluster.conf <<'END'
apiVersion: v1
kind: Config
clusters: [{name: "", cluster: {server: "{{ cluster_endpoint }}", certificate-authority-data: "{{ cluster_ca }}"}}]
END
cat > /etc/default/kubelet <<'END'
KUBELET_EXTRA_ARGS=--node-labels={{ labels }} {{ kubelet_flags }}
END
cat > /run/join.yaml <<'END'
apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
nodeRegistration:
  name: {{ node_name }}
  taints: {{ taints_json }}
discovery:
  file: {kubeConfigPath: /run/cluster.conf}
  tlsBootstrapToken: {{ bootstrap_token }}
END
kubeadm join --config /run/join.yaml
