//! An in-memory Kubernetes API: a tower Service and an HTTP(S) listener.
