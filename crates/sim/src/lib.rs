//! What lives in a cluster: scheduler, kubelets, workload controllers, faults and scenarios.
