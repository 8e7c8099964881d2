//! Whole lives of clusters on the shipped providers of clouds, and behind the provider protocol (Z-059, G-001). `just soak` lives many more.

use serde_json::Value;
use spokeshave_provider_grpc::Way;
use spokeshave_sim::rehearsal::{self, CloudName};
use spokeshave_sim::soak::{self, RunOptions, SeedResult};

use crate::permissions::{
    a_node_by_name, assert_allowed, roles, roles_of_azure_behind_the_protocol, roles_of_seeds,
};

/// Everything went as promised, with the permissions that the chart gives.
fn is_clean(outcome: &SeedResult, roles: &[Value]) {
    assert!(
        outcome.is_clean(),
        "{}: {:?} {:?} {:?}",
        outcome.scenario,
        outcome.stuck,
        outcome.refused,
        outcome.violations
    );
    assert!(outcome.steps > 5, "something has happened: {}", outcome.scenario);
    assert!(
        outcome.requests > 300,
        "the operator has worked: {}",
        outcome.requests
    );
    assert_allowed(&outcome.asked, roles);
}

#[test]
fn z_059_clusters_live_on_azure_with_drift_evictions_refusals_and_deaths() {
    for seed in [1, 6] {
        let outcome = rehearsal::run_with(CloudName::Azure, seed, RunOptions::default());
        is_clean(&outcome, &roles("azure"));
    }
}

#[test]
fn z_040_clusters_live_as_well_where_aks_makes_machines() {
    for seed in [2, 3] {
        let outcome = rehearsal::run_with(CloudName::AzureMachines, seed, RunOptions::default());
        is_clean(&outcome, &roles("azure-machines"));
    }
}

/// Each replacement looks at the nodes that are to take its pods, which the chart must allow on every cloud.
#[test]
fn z_059_a_policy_freezes_and_paces_one_nodepool_of_an_aks_node_class_and_no_other() {
    for (cloud, way, roles) in [
        (CloudName::Azure, Way::InProcess, roles("azure")),
        (CloudName::AzureMachines, Way::InProcess, roles("azure-machines")),
        (CloudName::Azure, Way::Pipe, roles_of_azure_behind_the_protocol()),
    ] {
        let asked = rehearsal::governed(cloud, way).unwrap();
        assert!(asked.contains(&a_node_by_name()), "{cloud:?}: {asked:?}");
        assert_allowed(&asked, &roles);
    }
}

#[test]
fn g_001_clusters_live_as_well_when_their_provider_is_behind_the_protocol() {
    let behind = |provider_way| RunOptions {
        provider_way,
        ..RunOptions::default()
    };
    let on_azure = rehearsal::run_with(CloudName::Azure, 7, behind(Way::Pipe));
    is_clean(&on_azure, &roles_of_azure_behind_the_protocol());
    is_clean(&soak::run_with(2, behind(Way::Pipe)), &roles_of_seeds());
    is_clean(&soak::run_with(2, behind(Way::UnixSocket)), &roles_of_seeds());
}

/// A-110, D-273, D-278: all of 60 spot nodes are reclaimed at once, and the operator is killed four times before the last NodeClaim is deleted.
#[test]
fn a_110_d_273_of_sixty_spot_nodes_taken_back_at_once_none_is_forgotten_by_operators_that_are_killed() {
    let lived = rehearsal::taken_back(60, u64::MAX, &[]).unwrap();
    assert_eq!((lived.interrupted, lived.deaths), (60, 0));
    assert!(lived.calls_until_deleted > 6, "ten messages a call: {lived:?}");
    let died = rehearsal::taken_back(60, lived.calls_before + 4, &[35, 45, 55]).unwrap();
    assert_eq!((died.interrupted, died.deaths), (60, 4), "{died:?}");
}

/// The same at other calls of a smaller cluster, from the first after the interruptions to the last before all NodeClaims are deleted.
#[test]
fn a_110_d_273_whichever_call_an_operator_is_killed_at_no_message_is_lost() {
    let lived = rehearsal::taken_back(12, u64::MAX, &[]).unwrap();
    let last = lived.calls_until_deleted;
    for part in 0..4 {
        let death = lived.calls_before + 1 + part * (last - 1) / 3;
        let died = rehearsal::taken_back(12, death, &[]).unwrap();
        assert_eq!(
            (died.interrupted, died.deaths),
            (12, 1),
            "killed at call {death}: {died:?}"
        );
    }
}

/// Every story of `just kills` on a cloud, with a death at one of its calls here and at every one there.
fn told_with_a_death(name: &str) {
    let all = rehearsal::cloud_stories();
    let story = all.iter().find(|story| story.name == name).unwrap();
    let calls = rehearsal::lived(story).unwrap();
    assert!(calls >= story.least_calls, "{name} makes only {calls} calls");
    rehearsal::every_call(story, calls / 2).unwrap();
}

/// A kill that comes too late proves nothing.
#[test]
fn invariant_37_a_cloud_whose_caller_survives_the_story_is_an_error() {
    let [story, ..] = rehearsal::cloud_stories();
    let problem = rehearsal::every_call(&story, 1_000_000).unwrap_err();
    assert!(problem.contains("nobody died"), "{problem}");
}

#[test]
fn invariant_37_d_235_another_image_replaces_every_machine_whoever_dies() {
    told_with_a_death("ec2-image");
}

#[test]
fn invariant_37_a_033_another_role_replaces_every_machine_and_leaves_no_profile() {
    told_with_a_death("ec2-role");
}

#[test]
fn invariant_37_d_293_a_lost_reservation_is_on_demand_whoever_dies() {
    told_with_a_death("ec2-reservation");
}

#[test]
fn invariant_37_d_296_a_zonal_shift_is_kept_to_whoever_dies() {
    told_with_a_death("ec2-zonal-shift");
}

#[test]
fn invariant_37_d_282_a_machine_that_is_ended_by_hand_is_replaced_whoever_dies() {
    told_with_a_death("ec2-by-hand");
}

#[test]
fn a_011_a_cluster_of_karpenters_nodes_is_taken_over_and_nothing_drifts_is_launched_or_ends() {
    rehearsal::taken_over().unwrap();
}
