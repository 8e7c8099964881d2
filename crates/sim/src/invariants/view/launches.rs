//! Launches as pods that wait see them: NodeClaims that are on their way, come up, or are given up.
//!
//! Owns what of a NodeClaim contradicts a pod. How long a pod may wait is for who asks.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;

use super::{Claim, Pod, View, later};
use spokeshave_cluster::rules;

/// Longer than any pod may wait.
const REMEMBERED: Duration = Duration::from_secs(4 * 3600);

/// A NodeClaim that pods need not wait for any longer.
#[derive(Debug)]
pub(crate) struct Settled {
    pub(crate) claim: Arc<Claim>,
    pub(crate) at: Timestamp,
    /// Whether its node is up; otherwise it was asked to go before.
    pub(crate) came_up: bool,
}

impl View {
    /// Notes what has become of a NodeClaim, if this write says so.
    pub(super) fn settle(&mut self, before: Option<&Arc<Claim>>, after: Option<&Arc<Claim>>) {
        let now = self.now;
        let is_up = |claim: &Claim| claim.is("Initialized", "True");
        let came_up = after.filter(|after| is_up(after) && before.is_none_or(|before| !is_up(before)));
        let goes = after.is_none_or(|after| after.deletion.is_some());
        let given_up = before.filter(|before| goes && before.deletion.is_none() && !is_up(before));
        if given_up.is_some_and(|claim| claim.never_joined(now)) {
            self.unjoined.push(now);
        }
        if let Some(claim) = came_up.or(given_up) {
            self.settled.retain(|one| later(one.at, REMEMBERED) > now);
            self.settled.push(Settled {
                claim: claim.clone(),
                at: now,
                came_up: came_up.is_some(),
            });
        }
    }
}

impl Claim {
    /// Whether nothing that it says of its node keeps this pod from there: what it leaves open may become what the pod needs.
    pub(crate) fn may_hold(&self, pod: &Pod) -> bool {
        let spec = &pod.shape.spec;
        let mut selected = spec.node_selector.iter().flatten();
        self.is_large_enough(pod)
            && rules::untolerated(spec, &self.shape.node, &["NoSchedule", "NoExecute"]).is_none()
            && selected.all(|(key, value)| self.may_be_one_of(key, std::slice::from_ref(value)))
            && self.may_be_chosen(spec)
    }

    /// Before it is launched nobody knows what it will have.
    fn is_large_enough(&self, pod: &Pod) -> bool {
        let requests = pod.shape.requests.iter();
        requests
            .filter_map(|(resource, wanted)| Some((wanted, self.capacity.get(resource)?)))
            .all(|(wanted, has)| wanted <= has)
    }

    /// Whether it may satisfy one of the terms of a required node affinity, if there are any.
    fn may_be_chosen(&self, spec: &core::PodSpec) -> bool {
        let affinity = spec.affinity.as_ref().and_then(|all| all.node_affinity.as_ref());
        let required =
            affinity.and_then(|node| node.required_during_scheduling_ignored_during_execution.as_ref());
        let may_satisfy = |one: &core::NodeSelectorRequirement| {
            let values = one.values.as_deref().unwrap_or_default();
            match one.operator.as_str() {
                "In" => self.may_be_one_of(&one.key, values),
                "NotIn" => self.may_be_another(&one.key, values),
                _ => true,
            }
        };
        required.is_none_or(|required| {
            let mut terms = required.node_selector_terms.iter();
            terms.any(|term| term.match_expressions.iter().flatten().all(may_satisfy))
        })
    }

    fn may_be_one_of(&self, key: &str, values: &[String]) -> bool {
        let is_one = |value: &String| values.contains(value);
        let excluded = self
            .asks(key, "NotIn")
            .any(|found| values.iter().all(|one| found.contains(one)));
        !excluded
            && self.labels.get(key).is_none_or(is_one)
            && self.asks(key, "In").all(|found| found.iter().any(is_one))
    }

    fn may_be_another(&self, key: &str, values: &[String]) -> bool {
        let is_another = |value: &String| !values.contains(value);
        self.labels.get(key).is_none_or(is_another)
            && self.asks(key, "In").all(|found| found.iter().any(is_another))
    }

    /// The values of its requirements of a label with this operator.
    fn asks<'a>(&'a self, key: &'a str, operator: &'a str) -> impl Iterator<Item = &'a Vec<String>> {
        let all = self.shape.requirements.iter();
        all.filter(move |one| one.key == key && one.operator == operator)
            .map(|one| &one.values)
    }
}
