//! Pods whose new nodes stay unused: each further node waits longer than the last.
//!
//! A node that joins and cannot take the pod it was launched for (something taints it, or the scheduler refuses it for a reason that nobody can
//! foresee) leaves the pod pending, and the next pass launches another, without end. The first two nodes come at once, as always; from then on there
//! are pauses, until a pod runs, or a NodePool or the workload changes. Others wait for nothing. The pods of a CapacityBuffer run nowhere: it has found its
//! place when a pass keeps its room on a node that came for it.
//!
//! Owns the memory and the arithmetic. It creates nothing, and a restart forgets it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use spokeshave_api::hash::digest_of;
use spokeshave_model::Pod;
use spokeshave_model::pod::{is_daemon, is_mirror};
use spokeshave_model::{Event, EventType, ObjectKind, ObjectRef};

use crate::buffers::buffer_behind;

/// Nodes in vain after which there is a pause.
const FREE: u32 = 2;
/// The first pause between two launches.
const FIRST_PAUSE: SignedDuration = SignedDuration::from_secs(30);
/// The longest pause.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_mins(5);
/// A node without the pod it was launched for has come up in vain after so long: the scheduler needs a moment.
const SETTLES_WITHIN: SignedDuration = SignedDuration::from_secs(10);
/// A pod that has run for so long has found its place.
const RUNS_FOR: SignedDuration = SignedDuration::from_secs(10);
/// What happened longer ago counts no more.
const FORGOTTEN_AFTER: SignedDuration = SignedDuration::from_hours(1);
/// Reason of the event on who waits.
const EVENT_REASON: &str = "NodesInVain";

/// Who asks for nodes: the pods of one controller and one revision, because the successor of an evicted pod is another pod, or a pod that has none; or a
/// CapacityBuffer for as long as its pods are alike, however many they are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Asker {
    id: String,
    is_buffer: bool,
}

impl Asker {
    /// Who a pod belongs to.
    #[must_use]
    pub fn of(pod: &Pod) -> Self {
        Askers::default().of(pod)
    }

    /// Who a pod that exists belongs to.
    fn of_existing(pod: &Pod) -> Self {
        let owners = pod.metadata.owner_references.iter().flatten();
        let controller = owners
            .into_iter()
            .find(|owner| owner.controller == Some(true))
            .map(|owner| &owner.uid);
        let own = pod.metadata.uid.as_ref();
        let labels = pod.metadata.labels.as_ref();
        let revision = labels.and_then(|labels| labels.get("controller-revision-hash"));
        let text = |part: Option<&String>| part.cloned().unwrap_or_default();
        Self {
            id: format!("{}/{}", text(controller.or(own)), text(revision)),
            is_buffer: false,
        }
    }
}

/// Who the pods of one Snapshot belong to. A buffer may have thousands, which are alike: one of them is looked at.
#[derive(Debug, Default)]
pub struct Askers {
    /// What decides where its pods may go, by the UID of a buffer.
    shapes: BTreeMap<String, u64>,
}

impl Askers {
    /// Who a pod belongs to.
    #[must_use]
    pub fn of(&mut self, pod: &Pod) -> Asker {
        let Some(buffer) = buffer_behind(pod) else {
            return Asker::of_existing(pod);
        };
        let uid = buffer.uid;
        let shape = *self.shapes.entry(uid.clone()).or_insert_with(|| shape(pod));
        Asker {
            id: format!("{uid}/{shape:x}"),
            is_buffer: true,
        }
    }
}

/// What decides where a pod may go, as a number.
fn shape(pod: &Pod) -> u64 {
    let asks = (&pod.metadata.labels, pod.spec.as_deref());
    digest_of(serde_json::to_vec(&asks).unwrap_or_default())
}

/// What has become of a NodeClaim that was created for somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is gone, or its launch failed.
    Gone,
    /// Its node is still to come.
    Coming,
    /// Its node has been initialised since then, and runs no pod but those of DaemonSets.
    Idle(Timestamp),
    /// Its node runs pods.
    Used,
}

/// Nodes in vain of one asker.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Vain {
    count: u32,
    /// When the first node was launched.
    since: Timestamp,
    /// When the last node was launched.
    launched: Timestamp,
}

/// A NodeClaim that was created, and for whom.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Launch {
    askers: BTreeSet<Asker>,
    created: Timestamp,
    /// Whether its node could run pods.
    has_come_up: bool,
}

/// A pod that waits because nodes have come up for it in vain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// How many nodes.
    pub count: u32,
    /// No other node is launched for it before.
    pub until: Timestamp,
}

impl Pause {
    /// The event on the pod, or on the buffer of a virtual one.
    #[must_use]
    pub fn event(&self, pod: &Pod) -> Event {
        let count = self.count;
        let until = Timestamp::from_second(self.until.as_second()).unwrap_or(self.until);
        if let Some(buffer) = buffer_behind(pod) {
            let message = format!(
                "{count} nodes came up for pods of this buffer, and none of them has room for one; look at their taints. The next is launched after {until}"
            );
            return Event::new(buffer, EventType::Warning, EVENT_REASON, message);
        }
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let meta = &pod.metadata;
        let object = ObjectRef::namespaced(
            ObjectKind::Pod,
            &text(&meta.namespace),
            &text(&meta.name),
            &text(&meta.uid),
        );
        let message = format!(
            "{count} nodes came up for this pod, and it runs on none of them; look at their taints and at the scheduler's events. The next is launched after {until}"
        );
        Event::new(object, EventType::Warning, EVENT_REASON, message)
    }
}

/// What is known of nodes that came up in vain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VainLaunches {
    /// The NodePools, by UID and generation, under which everything else was learnt.
    pools: BTreeSet<(String, i64)>,
    vain: BTreeMap<Asker, Vain>,
    /// By name of the NodeClaim.
    launches: BTreeMap<String, Launch>,
}

/// The pause before another node, after so many in vain.
fn pause(count: u32) -> SignedDuration {
    match count.checked_sub(FREE) {
        None => SignedDuration::ZERO,
        Some(more) => {
            let doubled = FIRST_PAUSE.checked_mul(1 << more.min(10));
            doubled.unwrap_or(LONGEST_PAUSE).min(LONGEST_PAUSE)
        }
    }
}

impl VainLaunches {
    /// A pass begins: forgets what is old, and everything when a NodePool has changed.
    pub fn begin(&mut self, pools: BTreeSet<(String, i64)>, now: Timestamp) {
        if self.pools != pools {
            self.vain.clear();
            self.pools = pools;
        }
        self.vain
            .retain(|_, vain| now.duration_since(vain.launched) < FORGOTTEN_AFTER);
        self.launches
            .retain(|_, launch| now.duration_since(launch.created) < FORGOTTEN_AFTER);
    }

    /// A NodeClaim was created for these.
    pub fn launched(&mut self, claim: &str, askers: BTreeSet<Asker>, now: Timestamp) {
        for asker in &askers {
            if let Some(vain) = self.vain.get_mut(asker) {
                vain.launched = now;
            }
        }
        let launch = Launch {
            askers,
            created: now,
            has_come_up: false,
        };
        self.launches.insert(claim.to_owned(), launch);
    }

    /// The node of a NodeClaim can run pods.
    pub fn came_up(&mut self, claim: &str) {
        if let Some(launch) = self.launches.get_mut(claim) {
            launch.has_come_up = true;
        }
    }

    /// A pass has looked for the room of buffers. `kept_since` says of a NodeClaim that keeps some for a buffer, or whose room is used, since when its node
    /// can run pods.
    pub fn found_room(&mut self, kept_since: impl Fn(&str, &Asker) -> Option<Timestamp>, now: Timestamp) {
        let vain = &mut self.vain;
        for (name, launch) in &mut self.launches {
            let created = launch.created;
            launch.askers.retain(|asker| {
                let has_settled = |since| now.duration_since(since) >= SETTLES_WITHIN;
                let is_kept = asker.is_buffer && kept_since(name, asker).is_some_and(has_settled);
                // Room that is older than the trouble says nothing about it.
                if is_kept && vain.get(asker).is_some_and(|vain| vain.since <= created) {
                    vain.remove(asker);
                }
                !is_kept
            });
        }
        self.launches.retain(|_, launch| !launch.askers.is_empty());
    }

    /// Another node is planned for somebody: takes in what has become of those before, at most one in vain a pass, and says whether to wait.
    pub fn wants(&mut self, asker: &Asker, fate: impl Fn(&str) -> Fate, now: Timestamp) -> Option<Pause> {
        let mut last = None;
        for (name, launch) in &mut self.launches {
            if !launch.askers.contains(asker) {
                continue;
            }
            let in_vain = match fate(name) {
                Fate::Coming => continue,
                Fate::Idle(since) if now.duration_since(since) < SETTLES_WITHIN => continue,
                Fate::Idle(_) => true,
                // Without a pod that waits there are few passes: it may go as an empty one between two. What keeps room is not asked about any more, and
                // what was there for long had other reasons to go.
                Fate::Gone => {
                    asker.is_buffer
                        && launch.has_come_up
                        && now.duration_since(launch.created) < LONGEST_PAUSE
                }
                Fate::Used => false,
            };
            if in_vain {
                last = last.max(Some(launch.created));
            }
            launch.askers.remove(asker);
        }
        self.launches.retain(|_, launch| !launch.askers.is_empty());
        if let Some(launched) = last {
            let vain = self.vain.entry(asker.clone()).or_insert(Vain {
                count: 0,
                since: launched,
                launched,
            });
            vain.count = vain.count.saturating_add(1);
            vain.launched = vain.launched.max(launched);
        }
        let vain = self.vain.get(asker)?;
        let until = vain.launched.saturating_add(pause(vain.count));
        let until = until.unwrap_or(Timestamp::MAX);
        (until > now).then_some(Pause {
            count: vain.count,
            until,
        })
    }

    /// A pod runs, or has ended: whoever has run for a while, or to its end, has found its place.
    pub fn ran(&mut self, pod: &Pod, now: Timestamp) {
        if self.vain.is_empty() && self.launches.is_empty() || is_daemon(pod) || is_mirror(pod) {
            return;
        }
        let status = pod.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_deref());
        let started = status.and_then(|status| status.start_time.as_ref());
        let Some(started) = started.map(|started| started.0) else {
            return;
        };
        let has_run = now.duration_since(started) >= RUNS_FOR;
        if phase == Some("Succeeded") || (phase == Some("Running") && has_run) {
            // Whoever runs since before the trouble says nothing about it.
            let asker = Asker::of(pod);
            if self.vain.get(&asker).is_some_and(|vain| vain.since <= started) {
                self.vain.remove(&asker);
            }
            for launch in self.launches.values_mut() {
                if launch.created <= started {
                    launch.askers.remove(&asker);
                }
            }
            self.launches.retain(|_, launch| !launch.askers.is_empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffers::{Resolved, virtual_pods};
    use k8s_openapi::api::core::v1::PodTemplateSpec;
    use serde_json::json;
    use spokeshave_api::CapacityBuffer;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn pod(owner: &str, change: serde_json::Value) -> Pod {
        let mut value = json!({"metadata": {"name": "p", "uid": "u", "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": owner, "controller": true},
        ]}});
        value["status"] = change;
        serde_json::from_value(value).unwrap()
    }

    fn asker(owner: &str) -> Asker {
        Asker::of(&pod(owner, json!({})))
    }

    /// The pods that stand for room of buffer `shop/room`.
    fn rooms(template: PodTemplateSpec, replicas: i32) -> Vec<Pod> {
        let mut buffer = CapacityBuffer::new("room", serde_json::from_value(json!({})).unwrap());
        buffer.metadata.namespace = Some("shop".to_owned());
        buffer.metadata.uid = Some("b-1".to_owned());
        let resolved = Resolved {
            template,
            pod_template: None,
            replicas,
        };
        virtual_pods(&buffer, &resolved)
    }

    fn room(number: usize) -> Pod {
        rooms(PodTemplateSpec::default(), 2).remove(number - 1)
    }

    /// Launches at each second of an hour at which `a` may, with a pass every ten seconds and nodes that come up idle at once.
    fn launches_of_an_hour(memory: &mut VainLaunches) -> Vec<i64> {
        let mut launched = Vec::new();
        for second in (0..3_600).step_by(10) {
            memory.begin(BTreeSet::new(), at(second));
            let up = |name: &str| Fate::Idle(at(name.parse().unwrap()));
            if memory.wants(&asker("a"), up, at(second)).is_none() {
                memory.launched(&second.to_string(), [asker("a")].into(), at(second));
                launched.push(second);
            }
        }
        launched
    }

    #[test]
    fn nodes_in_vain_come_ever_later_and_never_later_than_the_longest_pause() {
        let launched = launches_of_an_hour(&mut VainLaunches::default());
        assert_eq!(launched[..7], [0, 10, 40, 100, 220, 460, 760], "{launched:?}");
        assert!(launched.len() < 20, "{launched:?}");
        let gaps = launched.windows(2).map(|pair| pair[1] - pair[0]);
        assert_eq!(gaps.max(), Some(LONGEST_PAUSE.as_secs()));
    }

    #[test]
    fn a_pod_that_runs_or_a_nodepool_that_changes_ends_the_pause_and_others_never_wait() {
        let mut memory = VainLaunches::default();
        launches_of_an_hour(&mut memory);
        let known = memory.clone();
        let idle = |_: &str| Fate::Idle(at(0));
        let waits = |memory: &mut VainLaunches, of: &str| memory.wants(&asker(of), idle, at(3_600)).is_some();
        assert!(waits(&mut memory, "a"));
        assert!(!waits(&mut memory, "b"), "another workload");
        // For a second, as a pod does that is evicted at once.
        let running = |since: i64| json!({"phase": "Running", "startTime": at(since).to_string()});
        memory.ran(&pod("a", running(3_599)), at(3_600));
        assert!(waits(&mut memory, "a"));
        memory.ran(&pod("b", running(5)), at(3_600));
        memory.ran(&pod("a", running(-5)), at(3_600));
        assert!(waits(&mut memory, "a"), "another workload's, and one from before");
        memory.ran(&pod("a", running(3_590)), at(3_600));
        assert!(!waits(&mut memory, "a"));
        let mut memory = known.clone();
        memory.ran(
            &pod(
                "a",
                json!({"phase": "Succeeded", "startTime": at(3_599).to_string()}),
            ),
            at(3_600),
        );
        assert!(!waits(&mut memory, "a"));
        let mut memory = known.clone();
        memory.begin([("pool".to_owned(), 2)].into(), at(3_600));
        assert!(!waits(&mut memory, "a"));
        let mut memory = known;
        memory.begin(BTreeSet::new(), at(7_300));
        assert!(!waits(&mut memory, "a"), "what is old is forgotten");
    }

    #[test]
    fn nodes_that_are_used_or_still_to_come_or_just_up_are_not_in_vain() {
        for fate in [Fate::Gone, Fate::Coming, Fate::Used, Fate::Idle(at(95))] {
            let mut memory = VainLaunches::default();
            for round in 0..20 {
                memory.launched(&format!("{round}"), [asker("a")].into(), at(90));
                assert_eq!(memory.wants(&asker("a"), |_| fate, at(100)), None, "{fate:?}");
            }
        }
        // Many at once count as one: the scheduler may be busy.
        let mut memory = VainLaunches::default();
        for name in 0..20 {
            memory.launched(&name.to_string(), [asker("a")].into(), at(90));
        }
        assert_eq!(memory.wants(&asker("a"), |_| Fate::Idle(at(90)), at(100)), None);
        assert_eq!(memory.vain[&asker("a")].count, 1);
    }

    #[test]
    fn the_pods_of_a_buffer_ask_as_one_and_their_pause_is_told_on_the_buffer() {
        assert_eq!(Asker::of(&room(1)), Asker::of(&room(2)));
        let mut exists = room(1);
        exists.metadata.resource_version = Some("7".to_owned());
        assert_ne!(Asker::of(&exists), Asker::of(&room(1)), "whatever is annotated");
        let pause = Pause {
            count: 3,
            until: at(60),
        };
        let event = pause.event(&room(1));
        let buffer = ObjectRef::namespaced(ObjectKind::CapacityBuffer, "shop", "room", "b-1");
        assert_eq!((event.object, event.reason.as_str()), (buffer, "NodesInVain"));
    }

    /// Nodes that are removed as empty ones before anybody has looked at them again.
    #[test]
    fn nodes_that_came_up_for_a_buffer_and_went_unused_are_in_vain() {
        let (buffer, pods) = (Asker::of(&room(1)), asker("a"));
        let mut memory = VainLaunches::default();
        for (second, name) in [(0, "1"), (100, "2"), (200, "3")] {
            memory.launched(name, [buffer.clone(), pods.clone()].into(), at(second));
            memory.came_up(name);
            assert_eq!(memory.wants(&pods, |_| Fate::Gone, at(second + 50)), None);
            memory.wants(&buffer, |_| Fate::Gone, at(second + 50));
        }
        // Its launch has failed, which is another story.
        memory.launched("4", [buffer.clone()].into(), at(260));
        let pause = memory.wants(&buffer, |_| Fate::Gone, at(270));
        assert_eq!(pause.map(|pause| pause.count), Some(3));
    }

    #[test]
    fn room_that_is_kept_ends_the_pause_of_its_buffer_and_no_other_does() {
        let buffer = Asker::of(&room(1));
        let mut memory = VainLaunches::default();
        for (second, name) in [(0, "1"), (10, "2"), (20, "3")] {
            memory.launched(name, [buffer.clone()].into(), at(second));
            memory.wants(&buffer, |_| Fate::Idle(at(second)), at(second + 10));
        }
        let waits = |memory: &mut VainLaunches| {
            let gone = |_: &str| Fate::Gone;
            memory.wants(&buffer, gone, at(60)).is_some()
        };
        assert!(waits(&mut memory));
        memory.launched("4", [buffer.clone(), asker("a")].into(), at(30));
        let mut known = memory.clone();
        known.found_room(|name, _| (name == "4").then_some(at(51)), at(60));
        assert!(waits(&mut known), "what taints nodes may be about to come");
        let mut known = memory.clone();
        known.found_room(|name, _| (name == "0").then_some(at(0)), at(60));
        assert!(waits(&mut known), "a node that came for somebody else");
        memory.found_room(|name, _| (name == "4").then_some(at(50)), at(60));
        assert!(!waits(&mut memory));
        let others = memory.launches["4"].askers.clone();
        assert_eq!(others, [asker("a")].into(), "pods have to run");
    }

    #[test]
    fn a_buffer_that_is_corrected_waits_no_longer_and_one_that_is_enlarged_still_does() {
        let asker_of = |template: &serde_json::Value, replicas: i32| {
            let template = serde_json::from_value(template.clone()).unwrap();
            Asker::of(&rooms(template, replicas)[0])
        };
        let plain = json!({"spec": {"containers": [{"name": "c"}]}});
        let mut tolerant = plain.clone();
        tolerant["spec"]["tolerations"] = json!([{"key": "broken", "operator": "Exists"}]);
        let buffer = asker_of(&plain, 1);
        let mut memory = VainLaunches::default();
        for (second, name) in [(0, "1"), (10, "2"), (20, "3")] {
            memory.launched(name, [buffer.clone()].into(), at(second));
            memory.wants(&buffer, |_| Fate::Idle(at(second)), at(second + 10));
        }
        let mut waits = |asker: &Asker| memory.wants(asker, |_| Fate::Gone, at(60)).is_some();
        assert!(waits(&buffer));
        assert!(waits(&asker_of(&plain, 7)));
        assert!(!waits(&asker_of(&tolerant, 1)));
    }
}
