//! A deterministic controller runtime over kube's watcher.
