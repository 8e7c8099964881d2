//! The dense domain: quantities, requirements, instance types, Snapshot, Plan, and the lowering of Kubernetes objects.
