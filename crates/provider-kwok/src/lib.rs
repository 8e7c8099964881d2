//! The kwok cloud: instance types by rule or from a file, instances that are Nodes.
