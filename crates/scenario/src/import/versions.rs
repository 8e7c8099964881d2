//! Versions of pod templates in a recording: which of them are different to a scheduler, and which pods are made from which.
//!
//! Owns what counts as another template. A new image, environment or annotation that no decision reads moves no pod to another place, and no roll-out is played
//! for it. It never replaces a pod: that is what engines make of [`Change::Template`].

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, PodSpec, PodTemplateSpec};
use serde_json::{Value, json};
use spokeshave_model::pod::requests_of_template;

use crate::timeline::{Change, Event, Owner, OwnerId, Timeline};

/// When two templates are taken for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Alike {
    /// Pods of both can be on the same nodes, and are treated alike there: those of two templates of a workload.
    Seen,
    /// Pods of both request the same: where only pods are recorded, since the rest of their specification is in part their own.
    Requests,
}

impl Alike {
    /// A text that templates have in common which are alike.
    fn key(self, template: &PodTemplateSpec) -> String {
        match self {
            Alike::Seen => seen(template),
            Alike::Requests => requests(template.spec.as_ref()).to_string(),
        }
    }
}

/// Versions of all owners.
#[derive(Debug, Default)]
pub(super) struct Versions {
    /// The number of a template among those of its owner, by what it is like. Only of owners that have shown another one than their first.
    numbers: BTreeMap<(OwnerId, String), u32>,
    /// From which template an owner makes its pods now, if that is not its first.
    now: BTreeMap<OwnerId, u32>,
    /// What was shown last of an owner that is like the template which it has now, and is not the same: most recordings show it again and again.
    shown: BTreeMap<OwnerId, Arc<PodTemplateSpec>>,
    /// Pods that begin one by one from another template than their owner's first.
    of_pods: BTreeMap<(OwnerId, u64), u32>,
    /// Templates besides the first one of each owner.
    count: usize,
}

impl Versions {
    /// How many templates there are besides the first one of each owner.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// An owner makes its pods from this template from now on. Its number if that is another one than before; one that is new is added to the owner.
    pub(super) fn turn(
        &mut self,
        id: OwnerId,
        owner: &mut Owner,
        template: &Arc<PodTemplateSpec>,
        alike: Alike,
    ) -> Option<u32> {
        let now = self.now.get(&id).copied().unwrap_or(0);
        if owner.templates().nth(now as usize) == Some(template) || self.shown.get(&id) == Some(template) {
            return None;
        }
        let first = (id, alike.key(&owner.template));
        self.numbers.entry(first).or_insert(0);
        let known = self.numbers.entry((id, alike.key(template)));
        let number = *known.or_insert_with(|| {
            owner.later.push(Arc::clone(template));
            self.count += 1;
            u32::try_from(owner.later.len()).unwrap_or(u32::MAX)
        });
        if number == now {
            self.shown.insert(id, Arc::clone(template));
            return None;
        }
        self.shown.remove(&id);
        if number == 0 {
            self.now.remove(&id);
        } else {
            self.now.insert(id, number);
        }
        Some(number)
    }

    /// A pod begins that its owner makes from the template which it has now.
    pub(super) fn begins(&mut self, owner: OwnerId, pod: u64) {
        if let Some(now) = self.now.get(&owner) {
            self.of_pods.insert((owner, pod), *now);
        }
    }

    /// Says in a timeline, which is in order, before each pod that begins by itself from which template it is made, where that is another one than before.
    pub(super) fn tell(self, timeline: &mut Timeline) {
        if self.of_pods.is_empty() {
            return;
        }
        let mut now: BTreeMap<OwnerId, u32> = BTreeMap::new();
        let mut events = Vec::with_capacity(timeline.events.len());
        for event in std::mem::take(&mut timeline.events) {
            if let Change::Begin { pod, .. } = event.change {
                let number = self.of_pods.get(&(event.owner, pod)).copied().unwrap_or(0);
                if now.insert(event.owner, number).unwrap_or(0) != number {
                    events.push(Event {
                        change: Change::Template(number),
                        ..event
                    });
                }
            }
            events.push(event);
        }
        timeline.events = events;
    }
}

/// What pods request, as a scheduler counts.
fn requests(spec: Option<&PodSpec>) -> Value {
    let all = spec.map(requests_of_template).unwrap_or_default();
    let all: BTreeMap<&str, i64> = all.iter().collect();
    json!(all)
}

/// What decides where pods can be, and whether and how they are removed from there. Labels are not in it: what selects pods by them is.
fn seen(template: &PodTemplateSpec) -> String {
    let meta = template.metadata.as_ref();
    let spec = template.spec.as_ref();
    let of = |field: fn(&PodSpec) -> Value| spec.map_or(Value::Null, field);
    json!({
        "annotations": meta.and_then(|meta| meta.annotations.as_ref()),
        "requests": requests(spec),
        "hostPorts": of(host_ports),
        "nodes": of(|spec| json!([spec.node_selector, spec.affinity, spec.tolerations, spec.topology_spread_constraints])),
        "turn": of(|spec| json!([spec.priority, spec.priority_class_name, spec.preemption_policy, spec.scheduler_name])),
        "gates": of(|spec| json!(spec.scheduling_gates)),
        "graceSeconds": of(|spec| json!(spec.termination_grace_period_seconds)),
    })
    .to_string()
}

/// Ports of the host that containers take.
fn host_ports(spec: &PodSpec) -> Value {
    let init = spec.init_containers.iter().flatten();
    let ports = |container: &Container| container.ports.clone().unwrap_or_default();
    let ports = spec.containers.iter().chain(init).flat_map(ports);
    let taken = ports.filter_map(|port| Some(json!([port.host_port?, port.host_ip, port.protocol])));
    taken.collect()
}
