//! A pod changed in place gives the Snapshot that lowering anew gives.

use spokeshave_example::{Dice, bound, random_world};
use spokeshave_model::{ClusterState, lower};
use std::sync::Arc;

/// Snapshots are equal, except for objects that are equal but not the same.
fn assert_same(state: &ClusterState, updated: &spokeshave_model::Snapshot, what: &str) {
    assert_eq!(*updated, lower(state), "{what}");
}

#[test]
fn one_changed_pod_equals_lowering_anew() {
    let (mut replaced, mut refused) = (0, 0);
    for seed in 0..200 {
        let mut state = random_world(seed);
        let mut snapshot = lower(&state);
        let mut dice = Dice(seed);
        for _ in 0..6 {
            if state.pods.is_empty() {
                break;
            }
            let index = dice.below(state.pods.len());
            let mut pod = (*state.pods[index]).clone();
            match dice.below(6) {
                0 => {
                    let node = state.nodes.get(dice.below(state.nodes.len() + 1));
                    let name = node.and_then(|node| node.metadata.name.clone());
                    pod = bound(pod, name.as_deref().unwrap_or("nowhere"));
                }
                1 => pod.status.get_or_insert_default().phase = Some("Succeeded".to_owned()),
                2 => pod.metadata.deletion_timestamp = pod.metadata.creation_timestamp.clone(),
                3 => {
                    pod.metadata
                        .labels
                        .get_or_insert_default()
                        .insert("app".to_owned(), "other".to_owned());
                }
                4 => {
                    let annotations = pod.metadata.annotations.get_or_insert_default();
                    annotations.insert("karpenter.sh/do-not-disrupt".to_owned(), "true".to_owned());
                }
                _ => {
                    let spec = pod.spec_mut();
                    spec.node_selector
                        .get_or_insert_default()
                        .insert("k".to_owned(), "v".to_owned());
                }
            }
            let pod = Arc::new(pod);
            state.pods[index] = Arc::clone(&pod);
            if snapshot.replace_pod(&pod) {
                replaced += 1;
                assert_same(&state, &snapshot, &format!("seed {seed}"));
            } else {
                refused += 1;
                snapshot = lower(&state);
            }
        }
    }
    assert!(
        replaced > 200 && refused > 50,
        "{replaced} replaced, {refused} refused"
    );
}

#[test]
fn all_pods_at_once_are_taken_in_or_refused() {
    for seed in 0..100 {
        let mut state = random_world(seed);
        let key =
            |pod: &Arc<spokeshave_model::Pod>| (pod.metadata.namespace.clone(), pod.metadata.name.clone());
        state.pods.sort_by_key(key);
        state.pods.dedup_by_key(|pod| key(pod));
        let before = lower(&state);
        let mut unchanged = before.clone();
        assert!(unchanged.replace_pods(&state.pods), "seed {seed}");
        assert_same(&state, &unchanged, "nothing changed");
        let Some(last) = state.pods.pop() else { continue };
        assert!(!before.clone().replace_pods(&state.pods), "a pod is gone");
        let mut renamed = (*last).clone();
        renamed.metadata.name = Some("zz-new".to_owned());
        state.pods.push(Arc::new(renamed));
        assert!(!before.clone().replace_pods(&state.pods), "a pod is new");
        state.pods.pop();
        let mut ended = (*last).clone();
        ended.status.get_or_insert_default().phase = Some("Succeeded".to_owned());
        state.pods.push(Arc::new(ended));
        let mut updated = before.clone();
        if updated.replace_pods(&state.pods) {
            assert_same(&state, &updated, &format!("seed {seed}"));
        }
    }
}
