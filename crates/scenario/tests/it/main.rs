//! What scenario files mean, and what their workloads come to.

mod generated;
mod imports;
mod scenario_files;

use serde_json::Value;
use spokeshave_scenario::Scenario;

/// A document as the binary hands it over.
fn document(yaml: &str) -> Value {
    serde_saphyr::from_str(yaml).expect("valid YAML")
}

/// A scenario of these workloads.
fn scenario(duration: &str, workloads: &str) -> Scenario {
    let text = format!(
        "apiVersion: simulate.spokeshave.dev/v1alpha1\nkind: Scenario\nmetadata: {{name: shop}}\nspec:\n  start: 2026-03-02T00:00:00Z\n  \
         duration: {duration}\n  cluster: {{manifests: [pools.yaml]}}\n  workloads:\n{workloads}\n  policies: [{{name: now}}]\n"
    );
    Scenario::read(&document(&text)).unwrap_or_else(|problems| panic!("{problems:#?}\n{text}"))
}
