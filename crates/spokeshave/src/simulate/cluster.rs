//! The cluster of a scenario: manifests and catalog become what the engine takes, and each policy its own NodePools.
//!
//! Owns patches and their validation, by the schema and rules by which an API server would judge the patched object. It decides nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, anyhow, bail};
use jiff::Timestamp;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::Value;
use spokeshave_api::conditions::{Conditioned as _, READY};
use spokeshave_api::{DisruptionPolicy, NodePool};
use spokeshave_provider_kwok::Catalog;
use spokeshave_scenario::file::{Merge, ModelName, PolicySpec};
use spokeshave_scenario::import::objects;
use spokeshave_simulate::left_out::LeftOut;
use spokeshave_simulate::{Model, Policy, World};

use super::document::{Document, Wrong};
use super::offers::Shop;
use super::standing::Nodes;
use super::{inputs, manifests, outdated, unshown};
use crate::lines::Lines;
use crate::plan::dump::Dump;
use crate::plan::ec2::Ec2;
use crate::plan::world::{Origin, World as Read, assume_ready};
use crate::plan::{files, schema};
use crate::text::say;

/// The environment of a scenario.
pub(crate) struct Setting {
    /// Cluster and cloud, equal for all policies.
    pub(crate) world: World,
    /// What is compared, in the order of the file.
    pub(crate) policies: Vec<Policy>,
    /// PodDisruptionBudgets of the manifests.
    pub(crate) budgets: Vec<Arc<PodDisruptionBudget>>,
    /// What had to be assumed.
    pub(crate) notes: Vec<String>,
    /// NodePools as they were written, of manifests and dumps.
    pub(crate) node_pools: Vec<Arc<NodePool>>,
    /// Nodes of the dumps with which no policy begins.
    pub(crate) left_out: Vec<LeftOut>,
    /// That no room is kept for CapacityBuffers, if there are any.
    pub(crate) roomless: Option<String>,
}

/// An object that policies may patch.
struct Patchable {
    kind: &'static str,
    name: String,
    /// As it was written.
    object: Value,
    /// File, line, and the lines of its fields, where they are known.
    place: Option<(String, usize, Lines)>,
}

impl Patchable {
    /// `FILE:LINE: ` of a field.
    fn place_of(&self, field: &str) -> String {
        let Some((file, first, lines)) = &self.place else {
            return String::new();
        };
        format!("{file}:{}: ", lines.line_or(field, *first))
    }
}

/// A path in a scenario file is relative to it.
pub(crate) fn beside(file: &str, path: &str) -> PathBuf {
    Path::new(file).parent().unwrap_or(Path::new("")).join(path)
}

/// Reads what the scenario names.
///
/// # Errors
/// A file cannot be read; an object would be refused, as it is or patched; or a patch has nothing to patch.
pub(crate) fn read(document: &Document, snapshot: &[PathBuf]) -> Result<Setting> {
    inputs::refuse_missing(document)?;
    let scenario = &document.scenario;
    let catalog = match &scenario.cluster.catalog {
        Some(path) => Catalog::from_file(&beside(&document.file, path))?,
        None => Catalog::default(),
    };
    let types = catalog.instance_types();
    let named = paths_of(document, &scenario.cluster.manifests);
    let mut paths: Vec<PathBuf> = snapshot.to_vec();
    paths.extend(paths_of(document, &scenario.cluster.snapshot));
    paths.extend_from_slice(&named);
    let dump = files::read(&paths)?;
    let dumps = &paths[..paths.len() - named.len()];
    let nodes = match scenario.cluster.begins_empty || dumps.is_empty() {
        true => Nodes::default(),
        false if named.is_empty() => Nodes::of(&dump, &dump.node_pools),
        // Manifests may be a whole dump, of which settings are taken alone.
        false => Nodes::of(&files::read(dumps).unwrap_or_default(), &dump.node_pools),
    };
    let judged = manifests::refuse_wrong(&named)?;
    let base = patchable(&dump);
    for object in &base {
        refuse_wrong(object)?;
    }
    let ec2 = Ec2::unless(scenario.cluster.catalog.as_deref().map(Path::new), None)?;
    let ec2 = ec2.map(Ec2::of_scenario);
    let origin = Origin::Scenario {
        own_catalog: scenario.cluster.catalog.is_some(),
    };
    let roomless = unshown::buffers(&dump.capacity_buffers);
    let node_pools = dump.node_pools.clone();
    // Pods are the business of the timeline, and so are workloads of versions that are read there alone. Neither engine keeps room for buffers.
    let mut dump = Dump {
        pods: Vec::new(),
        workloads: Vec::new(),
        capacity_buffers: Vec::new(),
        ..dump
    };
    if named.len() < paths.len() {
        // What the manifests have of them runs nowhere.
        dump.skipped.retain(|kind, number| {
            if objects::is_read(&kind.1, &kind.0) {
                *number = judged.of_dumps.get(kind).copied().unwrap_or(0);
            }
            *number > 0
        });
    }
    let mut shop = Shop::of(&dump, origin, types, ec2.as_ref());
    let read = Read::new(dump, origin, types, ec2.as_ref(), Arc::default(), scenario.start);
    let mut world = World::of_scenario(scenario, Arc::clone(types));
    world.daemon_sets = read.state.daemon_sets;
    let policies = scenario
        .policies
        .iter()
        .map(|spec| policy(document, spec, &base, &mut shop))
        .collect::<Result<Vec<Policy>>>()?;
    if policies.iter().all(|policy| policy.node_pools.is_empty()) {
        let place = match document.file.as_str() {
            "" => String::new(),
            file => format!("{file}: "),
        };
        for note in &read.notes {
            say(&format!("note: {note}"));
        }
        let outdated = outdated::hint(&paths)?.map(|hint| format!("; {hint}"));
        bail!(
            "{place}there is no NodePool in {}, so that no pod could ever run{}",
            shown(&paths),
            outdated.unwrap_or_default()
        );
    }
    let (standing, left_out) = nodes.stand(&world, &policies);
    world.standing = standing;
    let mut notes = read.notes;
    // That a NodePool of a file has no status is the rule here.
    notes.retain(|note| read.taken_as_ready.as_ref() != Some(note));
    let of_policies = shop.notes().iter().filter(|note| !notes.contains(note));
    let of_policies: Vec<String> = of_policies.cloned().collect();
    notes.extend(of_policies);
    notes.extend(judged.idle);
    Ok(Setting {
        world,
        policies,
        budgets: read.state.pod_disruption_budgets,
        notes,
        node_pools,
        left_out,
        roomless,
    })
}

/// What the figures leave out of the NodePools of policies, or take for granted of them: each sentence once, whichever policies it is about.
pub(crate) fn caveats(policies: &[Policy]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for pool in policies.iter().flat_map(|policy| &policy.node_pools) {
        let name = pool.name();
        let unready = pool.condition(READY).filter(|_| !pool.is_true(READY));
        let unready = unready.map(|condition| {
            let said = [condition.reason.as_str(), condition.message.as_str()];
            let said = said
                .into_iter()
                .find(|text| !text.is_empty())
                .unwrap_or("no reason");
            format!("NodePool {name} is not Ready in the dump ({said}): taken as ready")
        });
        let fixed = pool.spec.replicas.filter(|replicas| *replicas > 0).map(|replicas| {
            let (nodes, are) = if replicas == 1 { ("node", "is") } else { ("nodes", "are") };
            format!("NodePool {name} is static (spec.replicas): its {replicas} {nodes} {are} launched whatever pods wait, as with the feature gate StaticCapacity on")
        });
        for caveat in unready.into_iter().chain(fixed) {
            if !found.contains(&caveat) {
                found.push(caveat);
            }
        }
    }
    found
}

/// Paths for a sentence.
pub(crate) fn shown(paths: &[PathBuf]) -> String {
    let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    paths.join(", ")
}

/// NodePools as they were written, and DisruptionPolicies; of two with one name, as of a dump and of a manifest, the later one counts.
fn patchable(dump: &Dump) -> Vec<Patchable> {
    let pools = dump.written.iter().filter(|written| written.is_node_pool());
    let pools = pools.map(|written| Patchable {
        kind: "NodePool",
        name: written.name().to_owned(),
        object: written.object.clone(),
        place: Some((written.file.clone(), written.line, written.lines.clone())),
    });
    let policies = dump.disruption_policies.iter().map(|policy| Patchable {
        kind: "DisruptionPolicy",
        name: policy.name().to_owned(),
        object: serde_json::to_value(policy.as_ref()).unwrap_or_default(),
        place: None,
    });
    let mut found: Vec<Patchable> = Vec::new();
    for object in pools.chain(policies) {
        found.retain(|known| (known.kind, &known.name) != (object.kind, &object.name));
        found.push(object);
    }
    found
}

fn refuse_wrong(object: &Patchable) -> Result<()> {
    match schema::refusal(object.kind, &object.object) {
        Some((field, why)) => Err(anyhow!(
            "{}{} {} would be refused by the API server: {why}",
            object.place_of(&field),
            object.kind,
            object.name
        )),
        None => Ok(()),
    }
}

/// Files that a scenario names.
pub(crate) fn paths_of(document: &Document, names: &[String]) -> Vec<PathBuf> {
    let paths = names.iter();
    paths.map(|path| beside(&document.file, path)).collect()
}

/// A kind in the manifests of a policy that a policy cannot bring.
fn foreign(dump: &Dump) -> Option<&'static str> {
    let kinds = [
        (dump.nodes.is_empty(), "Node"),
        (dump.pods.is_empty(), "Pod"),
        (dump.node_claims.is_empty(), "NodeClaim"),
        (dump.node_classes.is_empty(), "NodeClass"),
        (dump.daemon_sets.is_empty(), "DaemonSet"),
        (dump.pod_disruption_budgets.is_empty(), "PodDisruptionBudget"),
        (dump.persistent_volumes.is_empty(), "PersistentVolume"),
        (dump.persistent_volume_claims.is_empty(), "PersistentVolumeClaim"),
        (dump.storage_classes.is_empty(), "StorageClass"),
        (dump.node_overlays.is_empty(), "NodeOverlay"),
        (dump.capacity_buffers.is_empty(), "CapacityBuffer"),
        (dump.workloads.is_empty(), "workload"),
    ];
    let found = kinds.into_iter().find(|(is_empty, _)| !is_empty);
    found.map(|(_, kind)| kind)
}

/// One policy's objects: those of the cluster, its own, and its patches on both.
fn policy(document: &Document, spec: &PolicySpec, base: &[Patchable], shop: &mut Shop<'_>) -> Result<Policy> {
    let own = match spec.manifests.is_empty() {
        true => Vec::new(),
        false => {
            let paths = paths_of(document, &spec.manifests);
            let dump = files::read(&paths)?;
            if let Some(kind) = foreign(&dump) {
                return Err(document.wrong(
                    &spec.path,
                    format!(
                        "policy {:?}: its manifests hold a {kind}; a policy can bring NodePools and DisruptionPolicies only, everything else belongs to `cluster`, where it holds for all policies",
                        spec.name
                    ),
                )
                .into());
            }
            manifests::refuse_wrong(&paths)?;
            patchable(&dump)
        }
    };
    let is_replaced = |object: &&Patchable| {
        own.iter()
            .any(|other| (other.kind, &other.name) == (object.kind, &object.name))
    };
    let kept = base.iter().filter(|object| !is_replaced(object));
    let mut objects: Vec<(&Patchable, Value)> = kept
        .chain(&own)
        .map(|object| (object, object.object.clone()))
        .collect();
    for merge in &spec.merge {
        patch(document, spec, merge, &mut objects)?;
    }
    let (mut pools, mut disruption_policies) = (Vec::new(), Vec::new());
    for (origin, object) in objects {
        let unreadable = |error: serde_json::Error| {
            document.wrong(
                &spec.path,
                format!(
                    "policy {:?}: {} {} cannot be read: {error}",
                    spec.name, origin.kind, origin.name
                ),
            )
        };
        match origin.kind {
            "NodePool" => {
                let mut pool: Arc<NodePool> = Arc::new(serde_json::from_value(object).map_err(unreadable)?);
                assume_ready(&mut pool, true, document.scenario.start);
                pools.push(pool);
            }
            _ => {
                let mut policy: DisruptionPolicy = serde_json::from_value(object).map_err(unreadable)?;
                // Holds, halts and trips of the cluster that was dumped, at another time than this one begins.
                policy.status = None;
                disruption_policies.push(Arc::new(policy));
            }
        }
    }
    pools.sort_by(|left, right| left.name().cmp(right.name()));
    disruption_policies.sort_by(|left, right| left.name().cmp(right.name()));
    let offers = shop.offers(&pools, document.scenario.start);
    let offers = offers.map_err(|pool| absent_class(document, spec, base, &own, shop, &pool))?;
    let mut policy = Policy::new(&spec.name, pools);
    policy.instance_types_of_pools = offers;
    policy.disruption_policies = disruption_policies;
    policy.model = match spec.model {
        ModelName::Ours => Model::Ours,
        ModelName::None => Model::None,
        ModelName::Karpenter => Model::Karpenter,
        ModelName::KarpenterBalanced => Model::KarpenterBalanced,
        ModelName::ClusterAutoscaler => Model::ClusterAutoscaler,
    };
    let settings = spec.settings;
    let disrupt = &mut policy.settings.disrupt;
    disrupt.spot_to_spot = settings.spot_to_spot.unwrap_or(disrupt.spot_to_spot);
    disrupt.rounds = settings.rounds.unwrap_or(disrupt.rounds);
    if let Some(replacements) = settings.replacements {
        disrupt.replacements = replacements as usize;
    }
    policy.batch_idle_ms = settings.batch_idle_ms.unwrap_or(policy.batch_idle_ms);
    policy.batch_max_ms = settings.batch_max_ms.unwrap_or(policy.batch_max_ms);
    Ok(policy)
}

/// A NodePool of a policy refers to a NodeClass that is not known.
fn absent_class(
    document: &Document,
    spec: &PolicySpec,
    base: &[Patchable],
    own: &[Patchable],
    shop: &Shop<'_>,
    pool: &NodePool,
) -> anyhow::Error {
    const FIELD: &str = "spec.template.spec.nodeClassRef";
    let class = pool.node_class_ref();
    let message = format!(
        "policy {:?}: NodePool {} refers to {} {:?}, which no file has, or which could not be read; expected one of {}, or its manifest in `cluster`",
        spec.name,
        pool.name(),
        class.kind,
        class.name,
        shop.classes_like(class).join(", ")
    );
    let mut merges = spec.merge.iter().rev();
    let merge = merges.find(|merge| {
        let is_meant = merge.name.as_ref().is_none_or(|name| name == pool.name());
        let patch = &merge.patch["spec"]["template"]["spec"]["nodeClassRef"];
        merge.kind == "NodePool" && is_meant && !patch.is_null()
    });
    if let Some(merge) = merge {
        return document.wrong(&format!("{}.{FIELD}", merge.path), message).into();
    }
    let mut known = base.iter().chain(own).rev();
    let origin = known.find(|object| object.kind == "NodePool" && object.name == pool.name());
    let place = origin.map(|origin| origin.place_of(FIELD)).unwrap_or_default();
    Wrong(vec![format!("{place}{message}")]).into()
}

/// Applies one merge patch, and judges what comes out.
fn patch(
    document: &Document,
    spec: &PolicySpec,
    merge: &Merge,
    objects: &mut [(&Patchable, Value)],
) -> Result<()> {
    let meant = |object: &Patchable| {
        object.kind == merge.kind && merge.name.as_ref().is_none_or(|name| *name == object.name)
    };
    let of_kind: Vec<&str> = objects
        .iter()
        .filter(|(object, _)| object.kind == merge.kind)
        .map(|(object, _)| object.name.as_str())
        .collect();
    let mut patched = 0;
    for (origin, object) in objects.iter_mut().filter(|(object, _)| meant(object)) {
        patched += 1;
        json_patch::merge(object, &merge.patch);
        // An object of a cluster is judged as well, once it is not that object any more.
        let mut judged = object.clone();
        if let Some(meta) = judged["metadata"].as_object_mut() {
            meta.retain(|key, _| !matches!(key.as_str(), "uid" | "resourceVersion" | "managedFields"));
        }
        if let Some((field, why)) = schema::refusal(origin.kind, &judged) {
            return Err(document
                .wrong(
                    &format!("{}.{field}", merge.path),
                    format!(
                        "policy {:?}: {} {} would be refused by the API server: {why}",
                        spec.name, origin.kind, origin.name
                    ),
                )
                .into());
        }
    }
    if patched == 0 {
        let there = match of_kind.is_empty() {
            true => format!("there is no {} in the cluster's manifests", merge.kind),
            false => format!("the cluster's are {}", of_kind.join(", ")),
        };
        let named = merge
            .name
            .as_ref()
            .map(|name| format!(" {name:?}"))
            .unwrap_or_default();
        let message = format!(
            "policy {:?} patches {}{named}, and {there}",
            spec.name, merge.kind
        );
        return Err(document.wrong(&merge.path, message).into());
    }
    Ok(())
}

/// The start time of a scenario from a dump: midnight (UTC) of the day of its newest object, so that the same file gives the same run.
pub(crate) fn start_of(newest: Option<Timestamp>) -> Timestamp {
    const DAY_MS: i64 = 86_400_000;
    let newest = newest.map_or(0, |newest| newest.as_millisecond());
    Timestamp::from_millisecond(newest - newest.rem_euclid(DAY_MS)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

    use super::*;

    const SCENARIO: &str = "\
apiVersion: simulate.spokeshave.dev/v1alpha1
kind: Scenario
metadata: {name: files}
spec:
  start: 2026-03-02T00:00:00Z
  duration: 1h
  cluster: {snapshot: [monday.yaml, tuesday.yaml]}
  workloads:
  - name: web
    deployments: {count: 2, cpu: 250m, memory: 512Mi}
    replicas: 2
  policies:
  - {name: now}
";

    /// The dump of a cluster with a NodePool, and with a budget of so many pods.
    fn dump(most: i32) -> String {
        format!(
            "\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {{name: default}}
spec:
  template:
    spec:
      nodeClassRef: {{group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}}
      requirements: []
  disruption: {{consolidationPolicy: WhenEmptyOrUnderutilized, consolidateAfter: 1m}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {{name: web, namespace: shop}}
spec: {{maxUnavailable: {most}, selector: {{}}}}
"
        )
    }

    /// An EC2NodeClass, an overlay on its types, and three policies of which the last one launches something else.
    #[test]
    fn policies_with_the_same_node_templates_share_their_instance_types() {
        let reference = "{group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}";
        let more = "\
---
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec: {amiSelectorTerms: [{alias: al2023@latest}]}
---
apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
metadata: {name: dear}
spec: {requirements: [], price: '1.0'}
";
        let kwok = "{group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}";
        let policies = "\
- {name: now}
  - {name: slow, merge: {NodePool: {spec: {disruption: {consolidateAfter: 9m}}}}}
  - {name: red, merge: {NodePool: {spec: {template: {metadata: {labels: {team: red}}}}}}}
";
        let folder = tempfile::tempdir().expect("a temporary folder");
        let text = dump(1).replace(kwok, reference) + more;
        std::fs::write(folder.path().join("monday.yaml"), text).expect("written");
        let scenario = SCENARIO
            .replace("monday.yaml, tuesday.yaml", "monday.yaml")
            .replace("- {name: now}\n", policies);
        let file = folder.path().join("scenario.yaml").display().to_string();
        let document = Document::parse(&file, &scenario).unwrap_or_else(|wrong| panic!("{wrong}"));
        let setting = read(&document, &[]).unwrap_or_else(|error| panic!("{error}"));
        let of = |policy: usize| &setting.policies[policy].instance_types_of_pools["default"];
        assert!(of(0).iter().any(|one| one.name == "m5.large"));
        assert!(Arc::ptr_eq(of(0), of(1)));
        assert!(!Arc::ptr_eq(of(0), of(2)));
    }

    /// NodeClasses of another provider, and those of AWS, without a catalog.
    #[test]
    fn notes_name_no_option_that_simulate_has_not() {
        let kwok = "{group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}";
        for (class, expected) in [
            (
                "{group: karpenter.azure.com, kind: AKSNodeClass, name: default}",
                "planned with those of the kwok provider; `catalog` of",
            ),
            (
                "{group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}",
                "and `catalog` of",
            ),
        ] {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let text = dump(1).replace(kwok, class);
            std::fs::write(folder.path().join("monday.yaml"), text).expect("written");
            let scenario = SCENARIO.replace("monday.yaml, tuesday.yaml", "monday.yaml");
            let file = folder.path().join("scenario.yaml").display().to_string();
            let document = Document::parse(&file, &scenario).unwrap_or_else(|wrong| panic!("{wrong}"));
            let notes = read(&document, &[])
                .unwrap_or_else(|error| panic!("{error}"))
                .notes
                .join("\n");
            assert!(notes.contains(expected) && !notes.contains("--"), "{notes}");
        }
    }

    #[test]
    fn of_two_budgets_with_one_name_the_later_one_counts() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (name, most) in [("monday.yaml", 1), ("tuesday.yaml", 2)] {
            std::fs::write(folder.path().join(name), dump(most)).expect("written");
        }
        let file = folder.path().join("scenario.yaml").display().to_string();
        let document = Document::parse(&file, SCENARIO).unwrap_or_else(|wrong| panic!("{wrong}"));
        let setting = read(&document, &[]).unwrap_or_else(|error| panic!("{error}"));
        let specs: Vec<_> = setting.budgets.iter().map(|budget| &budget.spec).collect();
        assert_eq!(specs.len(), 1, "{specs:?}");
        let most = specs[0].as_ref().and_then(|spec| spec.max_unavailable.clone());
        assert_eq!(most, Some(IntOrString::Int(2)));
    }
}
