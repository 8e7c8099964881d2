//! A Snapshot that has taken changes in is the one that lowering the same objects gives, whatever came before.

use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::CSINode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use spokeshave_api::NodeClaim;
use spokeshave_example::{
    Dice, Shape, bound, cluster, epoch, instance_type, labelled, node, pending_pod, random_world,
};
use spokeshave_model::{
    Applied, Change, ClusterState, LiveSnapshot, Nomination, Pod, Revocable, labels, lower,
};
use std::sync::Arc;

/// A cluster that changes by chance, kept as plain lists of objects.
struct World {
    state: ClusterState,
    dice: Dice,
    made: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut state = random_world(seed);
        for app in ["web", "db"] {
            state.pod_disruption_budgets.push(budget(app, 0, app));
        }
        World {
            state,
            dice: Dice(seed),
            made: 0,
        }
    }

    /// Some change, made to the lists and told.
    fn change(&mut self) -> Change {
        match self.dice.below(20) {
            0..8 => self.pod_change(),
            8..13 => self.node_change(),
            13..16 => self.claim_change(),
            16 => {
                let id = self.provider_id();
                match self.dice.below(3) {
                    0 => {
                        let until = (self.dice.below(2) == 0).then(epoch);
                        match until {
                            Some(until) => {
                                _ = self.state.nominations.insert(id.clone(), Nomination { until });
                            }
                            None => _ = self.state.nominations.remove(&id),
                        }
                        Change::Nominated(id, until)
                    }
                    1 => {
                        let held = self.dice.below(2) == 0;
                        put(&mut self.state.in_command, &id, held);
                        Change::InCommand(id, held)
                    }
                    _ => {
                        let marked = self.dice.below(2) == 0;
                        put(&mut self.state.marked_for_deletion, &id, marked);
                        Change::MarkedForDeletion(id, marked)
                    }
                }
            }
            17 => {
                let command = Revocable {
                    leaves: [self.provider_id(), self.provider_id()].into(),
                    comes: [self.provider_id()].into(),
                };
                let all: Vec<Revocable> = vec![command; self.dice.below(3)];
                self.state.revocable.clone_from(&all);
                Change::Revocable(all)
            }
            18 => {
                let app = *self.dice.pick(&["web", "db"]);
                let selects = if self.dice.below(4) == 0 { "cache" } else { app };
                let allowed = i32::from(self.dice.below(2) == 0);
                let budget = budget(app, allowed, selects);
                let known = self.state.pod_disruption_budgets.iter_mut();
                for one in known.filter(|one| one.metadata.name == budget.metadata.name) {
                    *one = budget.clone();
                }
                Change::PodDisruptionBudget(budget)
            }
            _ => self.other_change(),
        }
    }

    fn other_change(&mut self) -> Change {
        match self.dice.below(3) {
            0 => {
                let name = format!("node-{:02}", self.dice.below(12));
                let object: CSINode =
                    serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"drivers": [
                    {"name": "ebs", "nodeID": name, "allocatable": {"count": self.dice.below(30)}}]}}))
                    .expect("a CSINode");
                let object = Arc::new(object);
                self.state.volumes.csi_nodes.insert(name, object.clone());
                Change::CsiNode(object)
            }
            1 => {
                let name = format!("node-{:02}", self.dice.below(12));
                self.state.volumes.csi_nodes.remove(&name);
                Change::CsiNodeGone(name)
            }
            _ => {
                let index = self.dice.below(self.state.node_pools.len());
                let mut pool = (*self.state.node_pools[index]).clone();
                let cpu =
                    k8s_openapi::apimachinery::pkg::api::resource::Quantity(self.dice.below(100).to_string());
                pool.spec
                    .limits
                    .get_or_insert_default()
                    .insert("cpu".to_owned(), cpu);
                let pool = Arc::new(pool);
                self.state.node_pools[index] = pool.clone();
                Change::NodePool(pool)
            }
        }
    }

    fn provider_id(&mut self) -> String {
        format!("kwok://node-{:02}", self.dice.below(14))
    }

    fn pod_change(&mut self) -> Change {
        let count = self.state.pods.len();
        match self.dice.below(14) {
            0 | 1 if count > 0 => {
                let gone = self.state.pods.swap_remove(self.dice.below(count));
                Change::PodGone {
                    namespace: gone.metadata.namespace.clone().unwrap_or_default(),
                    name: gone.metadata.name.clone().unwrap_or_default(),
                    is_virtual: spokeshave_model::pod::is_virtual(&gone),
                }
            }
            2..5 => self.new_pod(),
            kind if count > 0 => {
                let index = self.dice.below(count);
                let mut pod = (*self.state.pods[index]).clone();
                match kind {
                    5 | 6 => {
                        let node = format!("node-{:02}", self.dice.below(14));
                        pod = bound(pod, &node);
                    }
                    7 => pod.status.get_or_insert_default().phase = Some("Succeeded".to_owned()),
                    8 => pod.metadata.deletion_timestamp = Some(Time(epoch())),
                    9 => {
                        let app = *self.dice.pick(&["web", "db", "cache", "other"]);
                        pod = labelled(pod, &[("app", app), ("seen", app)]);
                    }
                    10 => {
                        let key = *self.dice.pick(&["k", labels::ZONE]);
                        let selector = pod.spec_mut().node_selector.get_or_insert_default();
                        selector.insert(key.to_owned(), "v".to_owned());
                    }
                    11 | 12 => {
                        let node = format!("node-{:02}", self.dice.below(14));
                        pod = promised(pod, &node);
                    }
                    _ => {
                        let annotations = pod.metadata.annotations.get_or_insert_default();
                        annotations.insert("karpenter.sh/do-not-disrupt".to_owned(), "true".to_owned());
                    }
                }
                let pod = Arc::new(pod);
                self.state.pods[index] = Arc::clone(&pod);
                Change::Pod(pod)
            }
            _ => self.new_pod(),
        }
    }

    /// A pod whose name may stand anywhere; of a DaemonSet, of odd resources, or virtual, now and then.
    fn new_pod(&mut self) -> Change {
        self.made += 1;
        let name = format!("pod-{:03}-{}", self.dice.below(60), self.made);
        let like = (!self.state.pods.is_empty()).then(|| self.dice.below(self.state.pods.len()));
        let mut pod = match like {
            Some(index) if self.dice.below(3) > 0 => Pod::clone(&self.state.pods[index]),
            _ => pending_pod(&name, "250m", "1Gi", &json!({})),
        };
        pod.metadata.name = Some(name);
        pod.metadata.uid = Some(format!("uid-{}", self.made));
        match self.dice.below(12) {
            0 | 1 => {
                let owner = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "daemon-0", "uid": "uid-daemon-0"}]);
                pod.metadata.owner_references = serde_json::from_value(owner).ok();
                let seconds = self.dice.below(5) as i64;
                let created = epoch() + jiff::SignedDuration::from_secs(seconds);
                pod.metadata.creation_timestamp = Some(Time(created));
            }
            2 => {
                let mut odd = pending_pod("odd", "1", "1Gi", &json!({}));
                let requests = json!({"requests": {"example.com/odd": "1"}});
                odd.spec_mut().containers[0].resources = serde_json::from_value(requests).ok();
                odd.metadata = pod.metadata;
                pod = odd;
            }
            3 => {
                let annotations = pod.metadata.annotations.get_or_insert_default();
                annotations.insert(
                    spokeshave_api::labels::CAPACITY_BUFFER_FAKE_POD.to_owned(),
                    "true".to_owned(),
                );
                // Half of them have the name of a pod that exists.
                let exists = self
                    .state
                    .pods
                    .iter()
                    .find(|one| !spokeshave_model::pod::is_virtual(one));
                if let (Some(exists), 0) = (exists, self.dice.below(2)) {
                    pod.metadata.name.clone_from(&exists.metadata.name);
                    pod.metadata.namespace.clone_from(&exists.metadata.namespace);
                }
                if spokeshave_model::pod::is_virtual(&pod) {
                    let key = |one: &Pod| (one.metadata.namespace.clone(), one.metadata.name.clone());
                    self.state
                        .pods
                        .retain(|one| !(spokeshave_model::pod::is_virtual(one) && key(one) == key(&pod)));
                }
            }
            _ => {}
        }
        let pod = Arc::new(pod);
        self.state.pods.push(Arc::clone(&pod));
        Change::Pod(pod)
    }

    fn node_change(&mut self) -> Change {
        let count = self.state.nodes.len();
        match self.dice.below(10) {
            0 if count > 0 => {
                let gone = self.state.nodes.swap_remove(self.dice.below(count));
                Change::NodeGone(gone.metadata.name.clone().unwrap_or_default())
            }
            1 | 2 => {
                let (node, _) = self.new_node();
                self.put_node(node)
            }
            kind if count > 0 => {
                let index = self.dice.below(count);
                let mut node = (*self.state.nodes[index]).clone();
                let found = node.metadata.labels.get_or_insert_default();
                match kind {
                    3 => _ = found.remove(labels::INITIALIZED),
                    4 => _ = found.insert(labels::INITIALIZED.to_owned(), "true".to_owned()),
                    5 => _ = found.remove(labels::REGISTERED),
                    6 => _ = found.insert("rack".to_owned(), format!("r{}", self.dice.below(3))),
                    7 => {
                        let taint = Taint {
                            key: "team".to_owned(),
                            effect: "NoSchedule".to_owned(),
                            ..Taint::default()
                        };
                        let some = self.dice.below(2) == 0;
                        node.spec.get_or_insert_default().taints = some.then(|| vec![taint]);
                    }
                    8 => {
                        let other = self.provider_id();
                        node.spec.get_or_insert_default().provider_id = Some(other);
                    }
                    _ => {
                        let capacity = &mut node.status.get_or_insert_default().capacity;
                        let amount = k8s_openapi::apimachinery::pkg::api::resource::Quantity("3".to_owned());
                        let name = *self.dice.pick(&["cpu", "example.com/rare"]);
                        capacity.get_or_insert_default().insert(name.to_owned(), amount);
                    }
                }
                self.put_node(node)
            }
            _ => {
                let (node, _) = self.new_node();
                self.put_node(node)
            }
        }
    }

    fn new_node(&mut self) -> (Node, NodeClaim) {
        let name = format!("node-{:02}", self.dice.below(14));
        let zone = *self.dice.pick(&["zone-a", "zone-b"]);
        node(
            "pool-0",
            &name,
            &instance_type("medium", 4, 16, &["zone-a"]),
            zone,
            "spot",
        )
    }

    fn put_node(&mut self, node: Node) -> Change {
        let node = Arc::new(node);
        self.state
            .nodes
            .retain(|one| one.metadata.name != node.metadata.name);
        self.state.nodes.push(Arc::clone(&node));
        Change::Node(node)
    }

    fn claim_change(&mut self) -> Change {
        let count = self.state.node_claims.len();
        let mut claim = match self.dice.below(4) {
            0 if count > 0 => {
                let gone = self.state.node_claims.swap_remove(self.dice.below(count));
                return Change::NodeClaimGone(gone.name().to_owned());
            }
            1 if count > 0 => {
                let mut claim = (*self.state.node_claims[self.dice.below(count)]).clone();
                claim.metadata.deletion_timestamp = Some(Time(epoch()));
                claim
            }
            2 if count > 0 => {
                let mut claim = (*self.state.node_claims[self.dice.below(count)]).clone();
                let id = self.provider_id();
                if let Some(status) = &mut claim.status {
                    status.provider_id = (self.dice.below(3) > 0).then_some(id);
                }
                claim
            }
            _ => self.new_node().1,
        };
        claim.metadata.resource_version = Some(self.dice.below(9).to_string());
        let claim = Arc::new(claim);
        self.state.node_claims.retain(|one| one.name() != claim.name());
        self.state.node_claims.push(Arc::clone(&claim));
        Change::NodeClaim(claim)
    }
}

/// The pod as it waits while somebody has named a node for it.
fn promised(mut pod: Pod, node: &str) -> Pod {
    pod.node_name = None;
    pod.status.get_or_insert_default().nominated_node_name = Some(node.to_owned());
    pod
}

fn put(all: &mut std::collections::BTreeSet<String>, id: &str, is_in: bool) {
    if is_in {
        all.insert(id.to_owned());
    } else {
        all.remove(id);
    }
}

fn budget(name: &str, allowed: i32, app: &str) -> Arc<PodDisruptionBudget> {
    let value = json!({"metadata": {"namespace": "default", "name": name}, "spec": {"maxUnavailable": 1,
        "selector": {"matchLabels": {"app": app}}}, "status": {"disruptionsAllowed": allowed, "currentHealthy": 1,
        "desiredHealthy": 1, "expectedPods": 1}});
    Arc::new(serde_json::from_value(value).expect("a PodDisruptionBudget"))
}

/// What differs first, so that a failure can be read.
fn assert_same(live: &LiveSnapshot, state: &ClusterState, what: &str) {
    let (taken, anew) = (&**live.snapshot(), &lower(state));
    assert_eq!(taken.resources, anew.resources, "{what}: resources");
    assert_eq!(taken.classes, anew.classes, "{what}: classes");
    assert_eq!(taken.requests, anew.requests, "{what}: requests");
    assert_eq!(taken.kinds, anew.kinds, "{what}: kinds");
    assert_eq!(taken.nodes, anew.nodes, "{what}: nodes");
    assert_eq!(taken.pods, anew.pods, "{what}: pods");
    assert_eq!(taken.pools, anew.pools, "{what}: pools");
    assert_eq!(taken, anew, "{what}");
}

#[test]
fn any_changes_give_what_lowering_the_same_objects_gives() {
    let (mut in_place, mut rebuilt) = (0, 0);
    for seed in 0..150 {
        let mut world = World::new(seed);
        let mut live = LiveSnapshot::new(world.state.clone());
        assert_same(&live, &world.state, &format!("seed {seed} at first"));
        for step in 0..25 {
            let count = 1 + world.dice.below(4);
            let changes: Vec<Change> = (0..count).map(|_| world.change()).collect();
            let what = format!("seed {seed}, step {step}: {changes:?}");
            match live.apply(changes) {
                Applied::InPlace => in_place += 1,
                Applied::Rebuilt => rebuilt += 1,
            }
            assert_same(&live, &world.state, &what);
            assert_eq!(lower(&live.state()), lower(&world.state), "{what}: objects");
        }
    }
    assert!(
        in_place > 2_000 && rebuilt > 200,
        "{in_place} in place, {rebuilt} rebuilt"
    );
}

/// In a cluster of ordinary workloads nothing that happens to nodes and pods lowers everything.
#[test]
fn what_happens_every_day_is_taken_in_in_place() {
    for shape in [Shape::Plain, Shape::Spread, Shape::Full] {
        let mut state = cluster(shape, 30, 300, 3);
        let mut live = LiveSnapshot::new(state.clone());
        let (old, claim) = (state.nodes.remove(7), state.node_claims.remove(7));
        let id = claim.provider_id().expect("a provider ID").to_owned();
        let name = old.metadata.name.clone().expect("a name");
        let on_it = |pod: &&Arc<Pod>| pod.node_name.as_deref() == Some(name.as_str());
        let pods: Vec<Arc<Pod>> = state.pods.iter().filter(on_it).cloned().collect();
        let mut leaving = (*old).clone();
        leaving.spec.get_or_insert_default().unschedulable = Some(true);
        let mut changes = vec![
            Change::InCommand(id.clone(), true),
            Change::MarkedForDeletion(id.clone(), true),
            Change::Node(Arc::new(leaving)),
        ];
        for pod in &pods {
            changes.push(Change::PodGone {
                namespace: pod.metadata.namespace.clone().unwrap_or_default(),
                name: pod.metadata.name.clone().unwrap_or_default(),
                is_virtual: false,
            });
            let mut again = Pod::clone(pod);
            again.metadata.name = Some(format!("{}-again", again.metadata.name.unwrap_or_default()));
            changes.push(Change::Pod(Arc::new(bound(again, "node-00000"))));
        }
        changes.extend([
            Change::NodeGone(name.clone()),
            Change::NodeClaimGone(claim.name().to_owned()),
            Change::InCommand(id.clone(), false),
            Change::MarkedForDeletion(id.clone(), false),
            Change::NodeClaim(Arc::clone(&claim)),
            Change::Node(Arc::clone(&old)),
        ]);
        for change in changes {
            match &change {
                Change::PodGone { name, .. } => {
                    state.pods.retain(|pod| pod.metadata.name.as_ref() != Some(name))
                }
                Change::Pod(pod) => state.pods.push(Arc::clone(pod)),
                _ => {}
            }
            let what = format!("{shape:?}: {change:?}");
            assert_eq!(live.apply([change]), Applied::InPlace, "{what}");
        }
        state.nodes.push(old);
        state.node_claims.push(claim);
        assert_same(&live, &state, &format!("{shape:?}"));
    }
}

/// Pods know their nodes by number, and a node that comes or goes moves the numbers of those behind it: of few as of many.
#[test]
fn pods_stay_on_their_nodes_when_a_node_goes_and_comes_wherever_it_stands() {
    let mut state = cluster(Shape::Plain, 24, 200, 3);
    let mut live = LiveSnapshot::new(state.clone());
    for index in 0..24 {
        let (node, claim) = (state.nodes.remove(index), state.node_claims.remove(index));
        let gone = Change::NodeGone(node.metadata.name.clone().expect("a name"));
        state.node_claims.insert(index, Arc::clone(&claim));
        assert_eq!(live.apply([gone]), Applied::InPlace);
        assert_same(&live, &state, &format!("without Node {index}"));
        state.node_claims.remove(index);
        assert_eq!(
            live.apply([Change::NodeClaimGone(claim.name().to_owned())]),
            Applied::InPlace
        );
        assert_same(&live, &state, &format!("without NodeClaim {index}"));
        state.node_claims.insert(index, Arc::clone(&claim));
        assert_eq!(live.apply([Change::NodeClaim(claim)]), Applied::InPlace);
        assert_same(&live, &state, &format!("with NodeClaim {index}"));
        state.nodes.insert(index, Arc::clone(&node));
        assert_eq!(live.apply([Change::Node(node)]), Applied::InPlace);
        assert_same(&live, &state, &format!("with Node {index}"));
    }
}

/// What a scheduler has named counts where it is, for as long as it stays; else the pod waits like any other. Whichever of the two comes first.
#[test]
fn p_056_a_pod_that_is_promised_a_node_is_on_it_while_that_is_there_and_stays() {
    let mut state = cluster(Shape::Plain, 4, 20, 3);
    let mut live = LiveSnapshot::new(state.clone());
    let medium = instance_type("medium", 4, 16, &["a"]);
    let (new, claim) = node("default", "new", &medium, "a", "spot");
    let (new, claim) = (Arc::new(new), Arc::new(claim));
    let id = claim.provider_id().expect("a provider ID").to_owned();
    let waits = promised(pending_pod("waits", "1", "1Gi", &json!({})), "new");
    let runs = Arc::new(bound(waits.clone(), "new"));
    let waits = Arc::new(waits);
    let mut other = Pod::clone(&waits);
    other.status.get_or_insert_default().nominated_node_name = Some("elsewhere".to_owned());
    let other = Arc::new(other);
    let marked = |marked| Change::MarkedForDeletion(id.clone(), marked);
    for (what, change, is_on, is_promised) in [
        ("its node is not there", Change::Pod(waits.clone()), false, false),
        (
            "its NodeClaim alone",
            Change::NodeClaim(claim.clone()),
            false,
            false,
        ),
        ("its node comes", Change::Node(new.clone()), true, true),
        ("its node is to go", marked(true), false, false),
        ("another name", Change::Pod(other.clone()), false, false),
        ("its name again", Change::Pod(waits.clone()), false, false),
        ("its node stays after all", marked(false), true, true),
        (
            "its node is gone",
            Change::NodeGone("new".to_owned()),
            false,
            false,
        ),
        ("its node is back", Change::Node(new.clone()), true, true),
        ("another name", Change::Pod(other), false, false),
        ("its name again", Change::Pod(waits), true, true),
        ("it is bound", Change::Pod(runs), true, false),
        ("its node is to go", marked(true), true, false),
    ] {
        match &change {
            Change::Pod(pod) => {
                state.pods.retain(|one| one.metadata.name != pod.metadata.name);
                state.pods.push(pod.clone());
            }
            Change::NodeClaim(claim) => state.node_claims.push(claim.clone()),
            Change::Node(node) => state.nodes.push(node.clone()),
            Change::NodeGone(_) => state.nodes.retain(|node| node.metadata.name != new.metadata.name),
            Change::MarkedForDeletion(id, marked) => put(&mut state.marked_for_deletion, id, *marked),
            other => panic!("{other:?}"),
        }
        assert_eq!(live.apply([change]), Applied::InPlace, "{what}");
        assert_same(&live, &state, what);
        let snapshot = live.snapshot();
        let view = snapshot.pods.iter().find(|view| view.key() == "default/waits");
        let view = view.expect("the pod");
        let on = view.node.map(|node| snapshot.node(node).name.as_str());
        assert_eq!(on, is_on.then_some("new"), "{what}");
        assert_eq!(
            (view.promised, view.provisionable),
            (is_promised, !is_on),
            "{what}"
        );
        let node = snapshot.nodes.iter().find(|node| node.node_name() == Some("new"));
        if let Some(node) = node {
            assert_eq!(node.is_nominated(epoch()), is_promised, "{what}");
            let requested = if is_on { 1000 } else { 0 };
            assert_eq!(
                (node.requested[0], node.pods.len()),
                (requested, usize::from(is_on)),
                "{what}"
            );
        }
    }
}

/// Whichever of pod and stand-in comes first; and on no node once the NodeClaim has an instance.
#[test]
fn p_107_a_pod_is_on_the_stand_in_of_the_nodeclaim_that_it_waits_for() {
    const STAND_IN: &str = "in-flight://u";
    let before = cluster(Shape::Plain, 4, 20, 3);
    let mut live = LiveSnapshot::new(before.clone());
    let claim = |id: &str| {
        let large = instance_type("large", 8, 32, &["a"]);
        let (_, mut claim) = node("default", "new", &large, "a", "spot");
        claim.status.get_or_insert_default().provider_id = Some(id.to_owned());
        Arc::new(claim)
    };
    let waits = Arc::new(pending_pod("new", "1", "1Gi", &json!({})));
    let mut expected = Pod::clone(&waits);
    expected.node_name = Some(STAND_IN.to_owned());
    let expected = Arc::new(expected);
    for (what, pod, id) in [
        ("the pod alone", &expected, None),
        ("both", &expected, Some(STAND_IN)),
        ("an instance", &expected, Some("kwok://new")),
        ("a pod that waits for a place", &waits, Some("kwok://new")),
    ] {
        let mut state = before.clone().with_pods([Pod::clone(pod)]);
        state.node_claims.extend(id.map(claim));
        let claim_change = id.map(|id| Change::NodeClaim(claim(id)));
        _ = live.apply([Change::Pod(Arc::clone(pod))].into_iter().chain(claim_change));
        assert_same(&live, &state, what);
        let snapshot = live.snapshot();
        let view = snapshot.pods.iter().find(|view| view.key() == "default/new");
        let on = view.and_then(|view| view.node);
        let on = on.map(|node| snapshot.node(node).provider_id.as_str());
        assert_eq!(on, id.filter(|id| *id == STAND_IN), "{what}");
    }
}
