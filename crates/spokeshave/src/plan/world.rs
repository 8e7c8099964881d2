//! From a dump to the state that decisions are made from, with notes on whatever had to be assumed.
//!
//! It fills in only what a file cannot say: the instance types, the readiness of a NodePool that was written by hand, and the pods of workloads
//! that were (module `workloads`). It never changes an object that says something.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use spokeshave_api::conditions::{Conditioned as _, NODE_CLASS_READY, READY, Status};
use spokeshave_api::disruption::Disruption;
use spokeshave_api::validation::LabelRules;
use spokeshave_api::{CapacityBuffer, EC2NodeClass, KWOKNodeClass, NodeOverlay, NodePool};
use spokeshave_model::Pod;
use spokeshave_model::default_spread::DefaultSpread;
use spokeshave_model::scheduler_profiles::SchedulerProfiles;
use spokeshave_model::snapshot::InstanceTypesProblem;
use spokeshave_model::volumes::VolumeObjects;
use spokeshave_model::{ClusterState, Distress, InstanceType, PriceFeed};
use spokeshave_plan::buffers::{resolve, virtual_pods};
use spokeshave_plan::overlays::{PoolTypes, Verdict, evaluate};
use spokeshave_plan::report::some_of;
use spokeshave_story::adopt::OldObjects;
use spokeshave_story::doctor::NOT_JUDGED;

use super::dump::{Dump, Named, key};
use super::ec2::Ec2;
use super::notes::notes;
use super::schema::{self, LeftOut};
use super::{kwok, twice, unjudged, workloads};
use crate::text::count;

/// Where a dump comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Files, which may be of any provider and written by hand.
    Files {
        /// Instance types and prices are those that the user names.
        own_catalog: bool,
    },
    /// The files of a scenario, which names a catalog itself: no option does.
    Scenario {
        /// It names one.
        own_catalog: bool,
    },
    /// The current cluster, whose operator decides.
    Cluster,
}

/// What a dump means, and what was assumed.
#[derive(Debug)]
pub(crate) struct World {
    /// The state.
    pub(crate) state: ClusterState,
    /// Sentences for standard error.
    pub(crate) notes: Vec<String>,
    /// Of these, the one that names NodePools without a status.
    pub(crate) taken_as_ready: Option<String>,
    /// Of these, the one that says which instance types are taken for those of the operator.
    pub(crate) taken_types: Option<String>,
    /// How many pods workloads may have once they are scaled up, by `Deployment/shop/web`. No decision reads it.
    pub(crate) most_replicas: BTreeMap<String, i64>,
    /// Objects that count as absent, all of which the notes name.
    pub(crate) left_out: Vec<LeftOut>,
    /// Objects of files in versions that are no longer read.
    pub(crate) outdated: Vec<OldObjects>,
}

impl World {
    /// Makes the state at `now`; every NodePool is offered the catalog, except where the file shows that its NodeClass is missing, and where
    /// `ec2` knows better what its EC2NodeClass allows.
    ///
    /// `profiles` are what kube-scheduler is configured to add to pods.
    pub(crate) fn new(
        mut dump: Dump,
        origin: Origin,
        catalog: &Arc<[InstanceType]>,
        ec2: Option<&Ec2>,
        profiles: Arc<SchedulerProfiles>,
        now: Timestamp,
    ) -> Self {
        let mut notes = notes(&dump, origin);
        let mut left_out: Vec<LeftOut> = dump.unreadable.iter().map(LeftOut::from).collect();
        let refused = match origin {
            Origin::Files { .. } | Origin::Scenario { .. } => schema::leave_out(&mut dump),
            Origin::Cluster => Vec::new(),
        };
        // Of what no cluster would take, none counts. The manifests of a scenario are meant to take the place of what its dump has, and are refused where they are
        // there twice.
        let repeated = match origin {
            Origin::Files { .. } => twice::keep_last(&mut dump),
            Origin::Scenario { .. } | Origin::Cluster => None,
        };
        let owner_annotations = dump.owner_annotations();
        let stateful_sets = dump.stateful_sets();
        let most_replicas = dump.most_replicas();
        notes.extend(repeated);
        notes.extend(refused.iter().map(LeftOut::note));
        left_out.extend(refused);
        if origin != Origin::Cluster {
            notes.extend(workloads::expand(&mut dump));
        }
        let supported = supported(&dump, origin);
        let by_class = ec2.map(|ec2| ec2.offers(&dump, &supported)).unwrap_or_default();
        notes.extend(by_class.notes.iter().cloned());
        let prices = if by_class.types.is_empty() {
            PriceFeed::Fixed
        } else {
            PriceFeed::WithoutSpot
        };
        notes.extend(foreign_classes(&dump, origin, &supported, ec2.is_some()));
        let taken_types = ec2.and_then(|_| kwok::note(&dump, origin, catalog));
        notes.extend(taken_types.clone());
        let mut pools = latest(dump.node_pools, |pool| pool.name().to_owned());
        let (mut instance_types, mut assumed) = (BTreeMap::new(), Vec::new());
        for pool in pools.values_mut() {
            let class = pool.node_class_ref();
            let same_kind = || {
                let classes = dump.node_classes.iter();
                classes.filter(|known| known.group == class.group && known.kind == class.kind)
            };
            let named = same_kind().find(|known| known.name == class.name);
            let offered = if named.is_none() && same_kind().next().is_some() {
                Err(InstanceTypesProblem::Failed(format!(
                    "{} {:?} is not in the file",
                    class.kind, class.name
                )))
            } else if origin == Origin::Cluster && ec2.is_some() && is_elsewhere(pool) {
                Err(InstanceTypesProblem::KnownElsewhere)
            } else {
                let of_class = by_class.types.get(&class.name).filter(|_| class.is_ec2());
                Ok(Arc::clone(of_class.unwrap_or(catalog)))
            };
            let ready = named.is_none_or(|class| class.ready != Some(false));
            let ignored = origin == Origin::Cluster && !is_one_of(pool, &supported);
            if assume_ready(pool, ready && !ignored, now) {
                assumed.push(pool.name().to_owned());
            }
            instance_types.insert(pool.name().to_owned(), offered);
        }
        let taken_as_ready = (!assumed.is_empty()).then(|| {
            let have = plural(assumed.len(), "has", "have");
            format!(
                "{} {} {have} no status: taken as ready",
                plural(assumed.len(), "NodePool", "NodePools"),
                some_of(&assumed, 5)
            )
        });
        notes.extend(taken_as_ready.clone());
        notes.extend(unjudged::pools(&pools));
        let mut overlays = latest(dump.node_overlays, |overlay| overlay.name().to_owned());
        if origin == Origin::Cluster {
            notes.extend(unjudged::leave_out_overlays(&mut overlays));
        }
        notes.extend(overlay(&overlays, &pools, &mut instance_types));
        let mut pods = dump.pods;
        let buffers = latest(dump.capacity_buffers, |buffer| key(&buffer.metadata));
        for (name, buffer) in &buffers {
            let (room, note) = room(name, buffer, &dump.named);
            pods.extend(room);
            notes.push(note);
        }
        let volumes = VolumeObjects {
            claims: latest(dump.persistent_volume_claims, |object| key(&object.metadata)),
            volumes: latest(dump.persistent_volumes, |object| key(&object.metadata)),
            storage_classes: latest(dump.storage_classes, |object| key(&object.metadata)),
            csi_nodes: latest(dump.csi_nodes, |object| key(&object.metadata)),
            ..VolumeObjects::default()
        };
        let default_spread = DefaultSpread {
            services: dump.services,
            controllers: dump.controllers,
        };
        let values = |map: BTreeMap<String, _>| map.into_values().collect();
        let state = ClusterState {
            nodes: latest(dump.nodes, |object| key(&object.metadata))
                .into_values()
                .collect(),
            pods,
            daemon_sets: latest(dump.daemon_sets, |object| key(&object.metadata))
                .into_values()
                .collect(),
            pod_disruption_budgets: latest(dump.pod_disruption_budgets, |object| key(&object.metadata))
                .into_values()
                .collect(),
            namespaces: latest(dump.namespaces, |object| key(&object.metadata))
                .into_values()
                .collect(),
            volumes,
            scheduler_profiles: profiles,
            default_spread,
            node_pools: pools.into_values().collect(),
            node_claims: values(latest(dump.node_claims, |claim| claim.name().to_owned())),
            instance_types,
            owner_annotations,
            stateful_sets: Arc::new(stateful_sets),
            disruption_policies: latest(dump.disruption_policies, |policy| policy.name().to_owned())
                .into_values()
                .collect(),
            disruptions: latest(dump.disruptions, |one| one.name().to_owned())
                .into_values()
                .collect(),
            supported_node_classes: supported,
            distress: Distress {
                prices,
                ..Distress::default()
            },
            ..ClusterState::default()
        };
        let outdated = dump.outdated.into_iter();
        let outdated = outdated.map(|((kind, version), names)| OldObjects {
            kind,
            version,
            names,
            source: "-f FILE",
        });
        Self {
            state,
            notes,
            taken_as_ready,
            taken_types,
            most_replicas,
            left_out,
            outdated: outdated.collect(),
        }
    }

    /// Whether every Disruption that was found can be read. One that nobody can read may hold any node, and may be replacing it.
    pub(crate) fn knows_commands(&self) -> bool {
        let mut unread = self.left_out.iter().filter_map(|one| one.unread.as_deref());
        unread.all(|kind| kind != "Disruption")
    }

    /// Takes in HorizontalPodAutoscalers that were read for themselves.
    pub(crate) fn scale_up_to(&mut self, autoscalers: &Dump) {
        self.most_replicas = autoscalers.most_replicas();
        self.left_out
            .extend(autoscalers.unreadable.iter().map(LeftOut::from));
    }
}

/// Corrects the instance types as the operator does with the feature gate NodeOverlay on, and says what became of each overlay.
fn overlay(
    overlays: &BTreeMap<String, Arc<NodeOverlay>>,
    pools: &BTreeMap<String, Arc<NodePool>>,
    instance_types: &mut BTreeMap<String, Result<Arc<[InstanceType]>, InstanceTypesProblem>>,
) -> Vec<String> {
    if overlays.is_empty() {
        return Vec::new();
    }
    let offered = pools.values().filter_map(|pool| {
        let types = instance_types.get(pool.name())?.as_ref().ok()?;
        Some(PoolTypes {
            pool: Arc::clone(pool),
            types: Arc::clone(types),
        })
    });
    let offered: Vec<PoolTypes> = offered.collect();
    let overlays: Vec<Arc<NodeOverlay>> = overlays.values().cloned().collect();
    let evaluation = evaluate(&overlays, &offered, &LabelRules::default());
    for PoolTypes { pool, types } in &offered {
        let corrected = evaluation.in_force.decorate(pool, types);
        instance_types.insert(pool.name().to_owned(), Ok(corrected));
    }
    let (mut in_force, mut notes) = (Vec::new(), Vec::new());
    for (overlay, verdict) in &evaluation.verdicts {
        let name = overlay.name();
        match verdict {
            Verdict::InForce => in_force.push(name),
            Verdict::Invalid(failures) => notes.push(format!(
                "NodeOverlay {name} is invalid and has no effect: {failures}"
            )),
            Verdict::Conflict(conflict) => {
                notes.push(format!("NodeOverlay {name} has no effect: {conflict}"));
            }
        }
    }
    if !in_force.is_empty() {
        notes.push(format!(
            "{} {} in force, as with the feature gate NodeOverlay on",
            plural(in_force.len(), "NodeOverlay", "NodeOverlays"),
            some_of(&in_force, 5)
        ));
    }
    notes
}

/// The virtual pods of a CapacityBuffer, as the operator plans for them with the feature gate CapacityBuffer on, and notes about them.
fn room(name: &str, buffer: &CapacityBuffer, named: &Named) -> (Vec<Arc<Pod>>, String) {
    if buffer.metadata.deletion_timestamp.is_some() {
        let note = format!("CapacityBuffer {name} is being deleted: no room is kept for it");
        return (Vec::new(), note);
    }
    match resolve(buffer, named) {
        Ok(resolved) => {
            let pods = virtual_pods(buffer, &resolved);
            let note = format!(
                "CapacityBuffer {name} keeps room for {}, as with the feature gate CapacityBuffer on",
                count(pods.len(), "pod")
            );
            (pods.into_iter().map(Arc::new).collect(), note)
        }
        Err(unresolved) => {
            let note = format!("CapacityBuffer {name} keeps no room: {}", unresolved.message);
            (Vec::new(), note)
        }
    }
}

/// By name; of two objects with one name the later one counts.
fn latest<T>(objects: Vec<Arc<T>>, name: impl Fn(&T) -> String) -> BTreeMap<String, Arc<T>> {
    objects
        .into_iter()
        .map(|object| (name(&object), object))
        .collect()
}

/// Nodes of commands under way count as the controllers count them: the memory of a command is its object.
pub(crate) fn mark_held(state: &mut ClusterState, commands: &[Arc<Disruption>]) {
    let held = commands.iter().filter(|command| command.holds_nodes());
    let nodes = held.flat_map(|command| &command.spec.nodes);
    let ids: Vec<String> = nodes.map(|node| node.provider_id.clone()).collect();
    state.in_command.extend(ids.iter().cloned());
    state.marked_for_deletion.extend(ids);
}

/// A NodePool without any condition counts as ready, unless its NodeClass is not. It was written by hand; or it is in a cluster, and no operator has
/// judged it, which its condition then tells.
pub(crate) fn assume_ready(pool: &mut Arc<NodePool>, class_ready: bool, now: Timestamp) -> bool {
    let says_something = pool
        .status
        .as_ref()
        .is_some_and(|status| !status.conditions.is_empty());
    if says_something || !class_ready {
        return false;
    }
    let mut ready = NodePool::clone(pool);
    let is_stored = pool.metadata.uid.is_some();
    let reason = if is_stored { NOT_JUDGED } else { "Ready" };
    ready.set(READY, Status::True, reason, "", now);
    *pool = Arc::new(ready);
    true
}

/// Kinds of NodeClasses, as (group, kind), that the cluster's operator supports; empty means all. EC2NodeClasses are among them if another operator
/// has written conditions to one.
fn supported(dump: &Dump, origin: Origin) -> Vec<(String, String)> {
    if origin != Origin::Cluster {
        return Vec::new();
    }
    let mut kinds = vec![(KWOKNodeClass::GROUP.to_owned(), KWOKNodeClass::KIND.to_owned())];
    let classes = dump.node_classes.iter();
    if classes
        .filter(|class| class.ec2.is_some())
        .any(|class| class.ready.is_some())
    {
        kinds.push((EC2NodeClass::GROUP.to_owned(), EC2NodeClass::KIND.to_owned()));
    }
    // Only an operator that knows the kind writes whether the class is ready.
    for pool in dump.node_pools.iter().filter(|pool| is_judged(pool)) {
        let class = pool.node_class_ref();
        let kind = (class.group.clone(), class.kind.clone());
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds
}

fn is_judged(pool: &NodePool) -> bool {
    pool.condition(NODE_CLASS_READY)
        .is_some_and(|condition| condition.status != "Unknown")
}

/// This program brings no instance types along for the kind.
fn is_elsewhere(pool: &NodePool) -> bool {
    let class = pool.node_class_ref();
    !class.is_kwok() && !class.is_ec2()
}

/// The NodePool's NodeClass is of one of these kinds.
fn is_one_of(pool: &NodePool, kinds: &[(String, String)]) -> bool {
    let class = pool.node_class_ref();
    kinds
        .iter()
        .any(|(group, kind)| class.group == *group && class.kind == *kind)
}

/// What becomes of NodePools whose NodeClass is another provider's: the operator ignores them, and for a file prices come from elsewhere.
fn foreign_classes(
    dump: &Dump,
    origin: Origin,
    supported: &[(String, String)],
    knows_ec2: bool,
) -> Vec<String> {
    let is_known = |pool: &NodePool| match origin {
        Origin::Cluster => is_one_of(pool, supported) && !(knows_ec2 && is_elsewhere(pool)),
        Origin::Files { .. } | Origin::Scenario { .. } => {
            pool.node_class_ref().is_kwok() || knows_ec2 && pool.node_class_ref().is_ec2()
        }
    };
    let mut foreign: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for pool in dump.node_pools.iter().filter(|pool| !is_known(pool)) {
        let class = pool.node_class_ref();
        foreign
            .entry((class.kind.as_str(), class.group.as_str()))
            .or_default()
            .push(pool.name());
    }
    let note = |((kind, group), mut pools): ((&str, &str), Vec<&str>)| {
        pools.sort_unstable();
        pools.dedup();
        let (are, refer) = if pools.len() == 1 {
            ("is", "refers")
        } else {
            ("are", "refer")
        };
        let named = format!(
            "{} {}",
            plural(pools.len(), "NodePool", "NodePools"),
            some_of(&pools, 5)
        );
        let of_catalog = |catalog: &str| {
            format!(
                "{named} {refer} to {kind} ({group}): planned with the instance types and prices of {catalog}"
            )
        };
        let of_kwok = |catalog: &str| {
            format!(
                "{named} {refer} to {kind} ({group}), of whose provider no instance types or prices are known: planned with those of the kwok provider; {catalog} names others"
            )
        };
        match origin {
            Origin::Cluster if supported.contains(&(group.to_owned(), kind.to_owned())) => format!(
                "instance types and prices of {kind} ({group}) are known to the operator only: nothing is planned for {named}; --catalog FILE names some"
            ),
            Origin::Cluster => format!(
                "{kind} ({group}) is not a kind of this operator's provider ({} of {}): {named} {are} ignored",
                KWOKNodeClass::KIND,
                KWOKNodeClass::GROUP
            ),
            Origin::Files { own_catalog: true } => of_catalog("--catalog"),
            Origin::Files { own_catalog: false } => of_kwok("--catalog FILE"),
            Origin::Scenario { own_catalog: true } => of_catalog("the scenario's `catalog`"),
            Origin::Scenario { own_catalog: false } => of_kwok("`catalog` of a scenario's `cluster`"),
        }
    };
    foreign.into_iter().map(note).collect()
}

pub(super) fn plural<'a>(number: usize, one: &'a str, several: &'a str) -> &'a str {
    if number == 1 { one } else { several }
}

/// Versions of Karpenter's kinds that Karpenter itself no longer serves, and that `convert` reads.
pub(crate) fn is_outdated(version: &str) -> bool {
    [
        "karpenter.sh/v1beta1",
        "karpenter.sh/v1alpha5",
        "karpenter.k8s.aws/v1beta1",
        "karpenter.k8s.aws/v1alpha1",
        "karpenter.azure.com/v1alpha2",
    ]
    .contains(&version)
}

#[cfg(test)]
mod tests {
    use spokeshave_model::lower;
    use spokeshave_plan::{MinValuesPolicy, Policy, provision};
    use spokeshave_provider_kwok::Catalog;
    use spokeshave_story::replicas::takes_no_part;

    use super::*;
    use crate::plan::dump::read;

    const FOREIGN: &str = "\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: large}
spec: {template: {spec: {requirements: [], nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}}}
---
apiVersion: v1
kind: Pod
metadata: {name: waiting, namespace: default, uid: p}
spec: {containers: [{name: c, image: i}]}
status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable}]}
";

    fn world(origin: Origin) -> World {
        let now = "2026-01-01T01:00:00Z".parse().expect("an instant");
        let dump = read("test", FOREIGN.as_bytes()).expect("a dump");
        World::new(
            dump,
            origin,
            Catalog::default().instance_types(),
            None,
            Arc::default(),
            now,
        )
    }

    /// Its EC2NodeClass has conditions: the operator of this cluster supports it, and so `plan --live` includes the NodePool.
    #[test]
    fn a_050_a_nodepool_of_a_live_ec2nodeclass_is_planned_with_types_of_ec2() {
        let now = "2026-01-01T01:00:00Z".parse().expect("an instant");
        let class = |status: &str| {
            format!(
                "---\napiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {{name: default}}\nspec: {{amiSelectorTerms: [{{alias: al2023@latest}}]}}\n{status}"
            )
        };
        let ready = "status: {conditions: [{type: Ready, status: 'True', reason: Ready, message: '', lastTransitionTime: '2026-01-01T00:00:00Z'}]}\n";
        for (status, launches) in [("", 0), (ready, 1)] {
            let text = format!("{FOREIGN}{}", class(status));
            let dump = read("test", text.as_bytes()).expect("a dump");
            let (catalog, ec2) = (Catalog::default(), Ec2::default());
            let types = catalog.instance_types();
            let world = World::new(dump, Origin::Cluster, types, Some(&ec2), Arc::default(), now);
            let outcome = provision(&lower(&world.state), &Policy::default(), now);
            assert_eq!(outcome.placements.claims.len(), launches, "{:?}", world.notes);
            let offered = world.state.instance_types["large"].as_ref().expect("types");
            assert_eq!(offered.iter().any(|one| one.name == "m5.large"), launches > 0);
        }
    }

    /// The operator of a cluster on Azure, or with a provider of another process, says whether a class is ready. What it could launch, only it knows.
    #[test]
    fn z_059_a_nodepool_that_its_operator_judges_is_not_called_ignored() {
        let now = "2026-01-01T01:00:00Z".parse().expect("an instant");
        let judged = "status: {conditions: [{type: NodeClassReady, status: 'True', reason: R, message: '', lastTransitionTime: '2026-01-01T00:00:00Z'}, {type: Ready, status: 'True', reason: R, message: '', lastTransitionTime: '2026-01-01T00:00:00Z'}]}\n";
        let (pool, pod) = FOREIGN.split_once("---\n").expect("two documents");
        let text = format!("{pool}{judged}---\n{pod}")
            .replace("karpenter.k8s.aws", "karpenter.azure.com")
            .replace("EC2NodeClass", "AKSNodeClass");
        let (catalog, ec2) = (Catalog::default(), Ec2::default());
        for (ec2, launches, said) in [
            (
                Some(&ec2),
                0,
                "instance types and prices of AKSNodeClass (karpenter.azure.com) are known to the operator only",
            ),
            (None, 1, ""),
        ] {
            let dump = read("test", text.as_bytes()).expect("a dump");
            let types = catalog.instance_types();
            let world = World::new(dump, Origin::Cluster, types, ec2, Arc::default(), now);
            let snapshot = lower(&world.state);
            let outcome = provision(&snapshot, &Policy::default(), now);
            assert_eq!(outcome.placements.claims.len(), launches, "{:?}", world.notes);
            assert!(world.notes.concat().starts_with(said), "{:?}", world.notes);
            let pool = snapshot.find_pool("large").expect("it is there");
            let view = snapshot.pool(pool);
            assert!(view.supported && view.ready);
            let strict = MinValuesPolicy::Strict;
            let why = takes_no_part(&snapshot, pool, strict);
            let is_elsewhere =
                why.is_some_and(|why| why.ends_with(spokeshave_plan::standing::KNOWN_ELSEWHERE));
            assert_eq!(is_elsewhere, launches == 0);
        }
    }

    /// On a live cluster the operator ignores the NodePool, and so do `plan --live` and `explain`; a file is planned, with a note.
    #[test]
    fn p_059_a_nodepool_of_another_provider_launches_nothing_live() {
        let now = "2026-01-01T01:00:00Z".parse().expect("an instant");
        for (origin, launches) in [(Origin::Cluster, 0), (Origin::Files { own_catalog: false }, 1)] {
            let world = world(origin);
            let snapshot = lower(&world.state);
            let outcome = provision(&snapshot, &Policy::default(), now);
            assert_eq!(outcome.placements.claims.len(), launches, "{origin:?}");
            assert!(
                world
                    .notes
                    .iter()
                    .any(|note| note.contains("EC2NodeClass (karpenter.k8s.aws)")),
                "{:?}",
                world.notes
            );
        }
        let world = world(Origin::Cluster);
        assert_eq!(
            world.notes,
            [
                "EC2NodeClass (karpenter.k8s.aws) is not a kind of this operator's provider (KWOKNodeClass of karpenter.kwok.sh): NodePool large is ignored"
            ]
        );
        let snapshot = lower(&world.state);
        let pool = snapshot.find_pool("large").expect("it is there");
        let why = takes_no_part(&snapshot, pool, MinValuesPolicy::Strict).expect("it launches nothing");
        assert!(
            why.contains("EC2NodeClass (karpenter.k8s.aws) is not a kind"),
            "{why}"
        );
    }
}
