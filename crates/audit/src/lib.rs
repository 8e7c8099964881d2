//! Re-checks a finished plan against its Snapshot from first principles.
