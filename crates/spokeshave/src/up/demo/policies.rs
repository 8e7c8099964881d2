//! Status of DisruptionPolicies during the demo: a line whenever one starts to stop disruption, or a rollout progresses.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::Client;
use kube::api::ListParams;
use spokeshave_api::DisruptionPolicy;
use spokeshave_ports::SharedClock;
use spokeshave_runtime::Api;

use crate::up::narrator::Narrator;

/// Prints until it is dropped.
pub(super) async fn watch(client: &Client, clock: &SharedClock, narrator: &Narrator) {
    let api: Api<DisruptionPolicy> = Api::all(client.clone());
    let mut known = BTreeSet::new();
    loop {
        // A request that fails is made again in a second.
        if let Ok(list) = api.list(&ListParams::default()).await {
            let said: BTreeMap<(String, String), String> = list.items.iter().flat_map(lines).collect();
            for ((policy, _), line) in said.iter().filter(|(key, _)| !known.contains(*key)) {
                narrator.policy(policy, line);
            }
            known = said.into_keys().collect();
        }
        clock.sleep(Duration::from_secs(1)).await;
    }
}

/// What one policy says now, each line under the policy's name and what makes it another line: a rule stays the same while the number of nodes that it keeps
/// changes.
fn lines(policy: &DisruptionPolicy) -> Vec<((String, String), String)> {
    let Some(status) = &policy.status else {
        return Vec::new();
    };
    let holds = status.active.iter().filter(|rule| rule.field != "spec.rollout");
    let holds = holds.map(|rule| {
        let domain = rule.domain.as_deref().unwrap_or_default();
        (format!("{}/{domain}", rule.field), rule.message.clone())
    });
    let waves = status.rollouts.iter().map(|one| {
        let message = one.message.clone();
        let message =
            message.unwrap_or_else(|| format!("wave {}: {} of {} have begun", one.wave, one.begun, one.size));
        let line = format!(
            "roll-out of NodePool {} ({}): {message}",
            one.node_pool, one.phase
        );
        (line.clone(), line)
    });
    holds
        .chain(waves)
        .map(|(key, line)| ((policy.name().to_owned(), key), line))
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
                "active": [
                    {"field": "spec.hold", "reasons": ["Empty"], "message": "nodes have changed lately, so that all rest"},
                    {"field": "spec.rollout", "domain": "default", "reasons": ["Drifted"], "message": "the roll-out tells of itself"},
                ],
                "rollouts": [{"nodePool": "default", "target": "1", "since": "2026-01-01T00:00:00Z", "wave": 2, "size": 3, "waveSince": "2026-01-01T00:00:00Z",
                              "begun": 1, "remaining": 2, "phase": "Rolling"}],
            },
        });
        let mut policy: DisruptionPolicy = serde_json::from_value(value).unwrap();
        let said: Vec<String> = lines(&policy).into_iter().map(|(_, line)| line).collect();
        assert_eq!(
            said,
            [
                "nodes have changed lately, so that all rest",
                "roll-out of NodePool default (Rolling): wave 2: 1 of 3 have begun"
            ]
        );
        let keys =
            |policy: &DisruptionPolicy| lines(policy).into_iter().map(|(key, _)| key).collect::<Vec<_>>();
        let before = keys(&policy);
        let status = policy.status.as_mut().unwrap();
        "9 nodes have changed".clone_into(&mut status.active[0].message);
        status.rollouts[0].begun = 3;
        let after = keys(&policy);
        assert_eq!(
            before[0], after[0],
            "the same rule in other words is not told again"
        );
        assert_ne!(before[1], after[1], "a roll-out that has come further is");
    }
}
