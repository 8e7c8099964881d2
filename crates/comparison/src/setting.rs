//! What a comparison is of: the scenario, its policies and inputs, as the caller knows them.
//!
//! Owns the facts that are printed beside the figures so that they can be repeated. It reads no file and computes no hash of one.

use serde::Serialize;

use crate::recorded::AsRecorded;

/// Everything about a simulation but its runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Setting {
    /// The scenario's name.
    pub scenario: String,
    /// SHA-256 of the scenario file, in hexadecimal.
    pub scenario_sha256: String,
    /// Begin of the simulated time, RFC 3339.
    pub start: String,
    /// Length of the simulated time in milliseconds, warm-up included.
    pub duration_ms: u64,
    /// The warm-up that is simulated but not counted, in milliseconds.
    pub warmup_ms: u64,
    /// Seeds that each policy was to run under.
    pub seeds: u32,
    /// The program's version.
    pub version: String,
    /// The policies, in the order of the scenario file.
    pub policies: Vec<Policy>,
    /// The policy that the others are compared with.
    pub baseline: String,
    /// Files that went in.
    pub inputs: Vec<Input>,
    /// What was done to the workload before it was simulated: time compressed, copies, scaling. Printed first.
    pub alterations: Vec<String>,
    /// What the figures leave out of this cluster, or take for granted, such as pods that no NodePool takes. Printed below them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// What really was in the same time, where the workload is a recording that tells it. Printed beside the policies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub as_recorded: Option<AsRecorded>,
}

/// A policy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    /// Its name, as in [`spokeshave_simulate::Run::policy`].
    pub name: String,
    /// Set if it models another product: what it models, such as `karpenter-1.14`. `None`: it is our own decision code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// In what it differs, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
}

/// A file that went in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Input {
    /// Its path as written in the scenario.
    pub file: String,
    /// What it was read as: `manifests`, `snapshot`, `dlrm`, …
    pub format: String,
    /// SHA-256 of its content, in hexadecimal.
    pub sha256: String,
    /// Its licence as the user states it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub licence: Option<String>,
}

/// The metadata of every report.
pub const NOT_MODELLED: &[&str] = &[
    "real usage: pods use what they request",
    "pulling images, beyond the time until a pod is ready",
    "the network, and where traffic goes",
    "quotas of the cloud account",
    "changes of prices",
    "what nodes of no NodePool cost, and room for CapacityBuffers",
    "preemption, host ports, and limits on attached volumes",
    "bugs and limits of the products that a policy models",
];
