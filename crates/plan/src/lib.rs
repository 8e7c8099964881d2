//! Pure decisions: provisioning, disruption, life cycle and termination, each with its report.
