//! What simulated runs show side by side: paired differences over seeds, tables, JSON and one HTML file.
//!
//! Owns statistics and wording ("cheaper", "dearer", "no difference shown"); it never runs a simulation and never reads a file.
