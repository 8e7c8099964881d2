//! What is off unless asked for, through the whole stack on virtual time: NodeOverlays and CapacityBuffers.

mod common;

#[path = "features/node_overlays.rs"]
mod node_overlays;

#[path = "features/capacity_buffers.rs"]
mod capacity_buffers;
