//! The Kubernetes API of Spokeshave: kinds, defaults, constants and CRDs.
