//! A cluster whose operators and cloud are the laboratory's own, and nothing comes between.

use std::time::Duration;

use serde_json::{Value, json};
use spokeshave_sim::lab::{Lab, LabOptions};

use crate::words::*;

/// A laboratory with words.
pub struct Cluster {
    pub lab: Lab,
}

impl std::ops::Deref for Cluster {
    type Target = Lab;

    fn deref(&self) -> &Lab {
        &self.lab
    }
}

impl Scene for Cluster {
    const STEP: Duration = Duration::from_millis(500);

    fn lab(&self) -> &Lab {
        &self.lab
    }
}

impl Cluster {
    /// A cluster with NodePool `default`, whose empty nodes go at once, changed by a merge patch of its spec; no operator yet.
    pub async fn new(options: LabOptions, change: Value) -> Self {
        let cluster = Self {
            lab: Lab::new(options).await,
        };
        cluster.node_class().await;
        let mut spec = json!({"disruption": {
            "consolidateAfter": "0s", "consolidationPolicy": "WhenEmpty", "budgets": [{"nodes": "100%"}],
        }});
        json_patch::merge(&mut spec, &change);
        cluster.pool("default", spec).await;
        cluster
    }

    /// The same with an operator.
    pub async fn started(seed: u64, change: Value) -> Self {
        Self::new(LabOptions::new(seed), change).await.with_operator()
    }

    /// The same in which no node is consolidated.
    pub async fn undisturbed(seed: u64) -> Self {
        Self::started(seed, json!({"disruption": {"consolidateAfter": "Never"}})).await
    }

    pub fn with_operator(mut self) -> Self {
        self.lab.start("a");
        self
    }
}
