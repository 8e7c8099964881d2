//! Whole lives of clusters on the shipped providers of clouds, and behind the provider protocol (Z-059, G-001). `just soak` lives many more.

use spokeshave_sim::rehearsal::{self, CloudName};
use spokeshave_sim::soak::{self, RunOptions, SeedResult};

fn is_clean(outcome: &SeedResult) {
    assert!(
        outcome.is_clean(),
        "{}: {:?} {:?}",
        outcome.scenario,
        outcome.stuck,
        outcome.violations
    );
    assert!(outcome.steps > 5, "something has happened: {}", outcome.scenario);
    assert!(
        outcome.requests > 300,
        "the operator has worked: {}",
        outcome.requests
    );
}

#[test]
fn z_059_clusters_live_on_azure_with_drift_evictions_refusals_and_deaths() {
    for seed in [1, 6] {
        is_clean(&rehearsal::run_with(
            CloudName::Azure,
            seed,
            RunOptions::default(),
        ));
    }
}

#[test]
fn z_040_clusters_live_as_well_where_aks_makes_machines() {
    for seed in [2, 3] {
        is_clean(&rehearsal::run_with(
            CloudName::AzureMachines,
            seed,
            RunOptions::default(),
        ));
    }
}

#[test]
fn g_001_clusters_live_as_well_when_their_provider_is_behind_the_protocol() {
    let behind = RunOptions {
        over_protocol: true,
        ..RunOptions::default()
    };
    is_clean(&rehearsal::run_with(CloudName::Azure, 7, behind));
    is_clean(&soak::run_with(2, behind));
}
