//! What DisruptionPolicies say while the story is told: a line whenever one stops something else than before, or a roll-out has come further.

use std::collections::BTreeSet;
use std::time::Duration;

use kube::Client;
use kube::api::ListParams;
use spokeshave_api::DisruptionPolicy;
use spokeshave_ports::SharedClock;
use spokeshave_runtime::Api;

use crate::narrator::Narrator;

/// Tells until it is dropped.
pub(super) async fn watch(client: &Client, clock: &SharedClock, narrator: &Narrator) {
    let api: Api<DisruptionPolicy> = Api::all(client.clone());
    let mut known = BTreeSet::new();
    loop {
        // A request that fails is made again in a second.
        if let Ok(list) = api.list(&ListParams::default()).await {
            let said: BTreeSet<(String, String)> = list.items.iter().flat_map(lines).collect();
            for (policy, line) in said.difference(&known) {
                narrator.policy(policy, line);
            }
            known = said;
        }
        clock.sleep(Duration::from_secs(1)).await;
    }
}

/// What one policy says now: its name, and each line.
fn lines(policy: &DisruptionPolicy) -> Vec<(String, String)> {
    let Some(status) = &policy.status else {
        return Vec::new();
    };
    // A hold says the same with a later end whenever another node has come.
    let holds = status.active.iter().map(|rule| rule.message.clone());
    let waves = status.rollouts.iter().map(|one| {
        let message = one
            .message
            .as_deref()
            .map(|text| format!(": {text}"))
            .unwrap_or_default();
        format!(
            "wave {} of NodePool {}, {} of {} taken, {}{message}",
            one.wave, one.node_pool, one.begun, one.size, one.phase
        )
    });
    holds
        .chain(waves)
        .map(|line| (policy.name().to_owned(), line))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn holds_and_waves_are_told() {
        let value = json!({
            "metadata": {"name": "calm"}, "spec": {"hold": {"duration": "20s"}},
            "status": {
                "active": [{"field": "spec.hold", "reasons": ["Empty"], "message": "nodes have changed lately, so that all rest"}],
                "rollouts": [{"nodePool": "default", "target": "1", "since": "2026-01-01T00:00:00Z", "wave": 2, "size": 3, "waveSince": "2026-01-01T00:00:00Z",
                              "begun": 1, "remaining": 2, "phase": "Rolling"}],
            },
        });
        let policy: DisruptionPolicy = serde_json::from_value(value).unwrap();
        let said: Vec<String> = lines(&policy).into_iter().map(|(_, line)| line).collect();
        assert_eq!(
            said,
            [
                "nodes have changed lately, so that all rest",
                "wave 2 of NodePool default, 1 of 3 taken, Rolling"
            ]
        );
    }
}
