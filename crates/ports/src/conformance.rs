//! The suite that every cloud provider must pass (P §14).
//!
//! Owns one check per promise of [`CloudProvider`]; a provider's tests implement [`Harness`] and call [`check_all`]. A check
//! reports what was promised and what came instead; it never panics, and it knows no provider.

mod drift;
mod launches;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube_core::DynamicObject;
use spokeshave_api::{NodeClaim, NodePool, labels};
use spokeshave_model::{InstanceType, Requirement, Requirements, Resources};

use crate::{CloudError, CloudProvider, SharedClock};

pub use drift::{drift_goes_by_the_class_that_is_shown, fresh_instances_have_not_drifted};
pub use launches::{
    concurrent_creates_make_one_instance, create_is_idempotent, create_is_idempotent_minutes_later,
};

/// How long the suite waits for a termination, in cluster time.
const TERMINATION_LIMIT: Duration = Duration::from_secs(3600);
/// Pause between two looks at a termination.
const POLL: Duration = Duration::from_secs(5);
/// Labels that every launched instance carries.
const NODE_LABELS: [&str; 5] = [
    labels::INSTANCE_TYPE,
    labels::ZONE,
    labels::CAPACITY_TYPE,
    labels::ARCH,
    labels::OS,
];

/// What a provider's tests lend to the suite. Names given to it are never used twice within one run.
pub trait Harness: Send + Sync {
    /// The provider under test.
    fn provider(&self) -> &dyn CloudProvider;
    /// The clock that the provider was made with; its time must pass (paused tokio time does).
    fn clock(&self) -> SharedClock;
    /// Whether minutes of that clock pass without anybody waiting for them. Where they do not, no launch is repeated minutes later.
    fn is_time_virtual(&self) -> bool {
        true
    }
    /// A NodePool for which the provider offers at least one instance type.
    fn node_pool(&self) -> NodePool;
    /// A NodeClaim as the API server would hold it (name, UID), which at least one available offering satisfies.
    fn node_claim(&self, name: &str) -> NodeClaim;
    /// A NodeClaim that no offering satisfies.
    fn impossible_node_claim(&self, name: &str) -> NodeClaim;
    /// A NodeClaim whose NodeClass does not exist; `None` when the provider cannot tell.
    fn node_claim_without_class(&self, name: &str) -> Option<NodeClaim>;
    /// A NodeClaim whose offerings have all run out of capacity, which the provider finds out at the launch, and for how long it takes them for
    /// unavailable then; `None` when a test cannot make that happen.
    fn exhausted_node_claim(&self, name: &str) -> Option<(NodeClaim, Duration)> {
        let _ = name;
        None
    }
    /// The NodeClass of its NodeClaims as the API server has it; `None` when the provider reads nothing of it.
    fn node_class(&self) -> BoxFuture<'_, Option<DynamicObject>> {
        std::future::ready(None).boxed()
    }
    /// Changes the NodeClass so that what was launched from it has drifted. The API server, and with it the provider, never hears of the change.
    fn change_node_class(&self, class: &mut DynamicObject) {
        let _ = class;
    }
    /// A provider ID of the same form that no instance has.
    fn unknown_provider_id(&self, real: &str) -> String {
        format!("{real}-never-was")
    }
    /// Label keys beyond the core's that every instance type must define.
    fn well_known_labels(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{check}: {message}")]
pub struct Failure {
    /// Name of the check, the same as its function.
    pub check: &'static str,
    /// What was expected and what came.
    pub message: String,
}

/// All broken promises of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failures(pub Vec<Failure>);

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, failure) in self.0.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{failure}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failures {}

type Kept = Result<(), String>;

/// Runs every check, in the order in which a reader would ask, and reports all that fail.
pub async fn check_all(harness: &dyn Harness) -> Result<(), Failures> {
    type Check = for<'a> fn(&'a dyn Harness) -> BoxFuture<'a, Kept>;
    let checks: [(&'static str, Check); 15] = [
        ("identity_is_complete", |h| identity_is_complete(h).boxed()),
        ("instance_types_are_complete", |h| {
            instance_types_are_complete(h).boxed()
        }),
        ("instance_types_are_stable", |h| {
            instance_types_are_stable(h).boxed()
        }),
        ("offerings_that_change_make_another_answer", |h| {
            offerings_that_change_make_another_answer(h).boxed()
        }),
        ("create_describes_the_node", |h| {
            create_describes_the_node(h).boxed()
        }),
        ("create_get_list_delete", |h| create_get_list_delete(h).boxed()),
        ("create_is_idempotent", |h| create_is_idempotent(h).boxed()),
        ("create_is_idempotent_minutes_later", |h| {
            create_is_idempotent_minutes_later(h).boxed()
        }),
        ("concurrent_creates_make_one_instance", |h| {
            concurrent_creates_make_one_instance(h).boxed()
        }),
        ("claims_do_not_share_instances", |h| {
            claims_do_not_share_instances(h).boxed()
        }),
        ("unknown_instances_are_not_found", |h| {
            unknown_instances_are_not_found(h).boxed()
        }),
        ("impossible_claims_lack_capacity", |h| {
            impossible_claims_lack_capacity(h).boxed()
        }),
        ("a_missing_node_class_is_named", |h| {
            a_missing_node_class_is_named(h).boxed()
        }),
        ("fresh_instances_have_not_drifted", |h| {
            fresh_instances_have_not_drifted(h).boxed()
        }),
        ("drift_goes_by_the_class_that_is_shown", |h| {
            drift_goes_by_the_class_that_is_shown(h).boxed()
        }),
    ];
    let mut failures = Vec::new();
    for (check, run) in checks {
        if let Err(message) = run(harness).await {
            failures.push(Failure { check, message });
        }
    }
    if failures.is_empty() {
        Ok(())
    } else {
        Err(Failures(failures))
    }
}

/// Name, NodeClass kinds and repair policies are usable.
pub async fn identity_is_complete(harness: &dyn Harness) -> Kept {
    let provider = harness.provider();
    ensure(!provider.name().is_empty(), || "name() is empty".into())?;
    ensure(!provider.supported_node_classes().is_empty(), || {
        "supported_node_classes() is empty".into()
    })?;
    for kind in provider.supported_node_classes() {
        let fields = [&kind.group, &kind.version, &kind.kind, &kind.plural];
        ensure(fields.iter().all(|field| !field.is_empty()), || {
            format!("incomplete NodeClass kind {kind:?}")
        })?;
    }
    for policy in provider.repair_policies() {
        ensure(
            ["True", "False", "Unknown"].contains(&policy.condition_status.as_str()),
            || format!("repair policy with impossible status: {policy:?}"),
        )?;
    }
    Ok(())
}

/// Every well-known label, offerings with zone and capacity type, allocatable within capacity.
pub async fn instance_types_are_complete(harness: &dyn Harness) -> Kept {
    let types = instance_types(harness).await?;
    ensure(!types.is_empty(), || {
        "no instance type for the harness's NodePool".into()
    })?;
    let names: Vec<&str> = types.iter().map(|it| it.name.as_str()).collect();
    ensure(names.is_sorted_by(|a, b| a < b), || {
        "instance types are not ordered by unique name".into()
    })?;
    let extra = harness.well_known_labels();
    for instance_type in types.iter() {
        let keys = NODE_LABELS
            .iter()
            .copied()
            .chain(extra.iter().map(String::as_str));
        check_instance_type(instance_type, keys).map_err(|what| format!("{}: {what}", instance_type.name))?;
    }
    Ok(())
}

fn check_instance_type<'a>(instance_type: &InstanceType, keys: impl Iterator<Item = &'a str>) -> Kept {
    for key in keys {
        ensure(instance_type.requirements.contains(key), || {
            format!("no requirement for label {key}")
        })?;
    }
    let own_name = instance_type
        .requirements
        .find(labels::INSTANCE_TYPE)
        .and_then(Requirement::single_value);
    ensure(own_name == Some(&instance_type.name), || {
        format!("its instance-type label is {own_name:?}")
    })?;
    for resource in ["cpu", "memory", "pods"] {
        ensure(instance_type.capacity.get(resource) > 0, || {
            format!("no capacity of {resource}")
        })?;
    }
    ensure(instance_type.allocatable().fits(&instance_type.capacity), || {
        "allocatable exceeds capacity".into()
    })?;
    for (index, offering) in instance_type.offerings.iter().enumerate() {
        for (key, value) in [
            (labels::ZONE, offering.zone().map(str::to_owned)),
            (
                labels::CAPACITY_TYPE,
                offering
                    .capacity_type()
                    .map(|capacity_type| capacity_type.to_string()),
            ),
        ] {
            let Some(value) = value else {
                return Err(format!("offering {index} does not define one value of {key}"));
            };
            // Clouds list zones that a NodeClass does not reach as offerings that are not available.
            ensure(
                !offering.available || instance_type.requirements.get(key).has(&value),
                || format!("offering {index} has {key}={value}, which the type's requirements exclude"),
            )?;
        }
        ensure(offering.price.0 >= 0, || {
            format!("offering {index} has a negative price")
        })?;
    }
    Ok(())
}

/// Two calls give the same answer, in the same order, and in the same allocation: callers take another one for a change.
pub async fn instance_types_are_stable(harness: &dyn Harness) -> Kept {
    let (first, second) = (instance_types(harness).await?, instance_types(harness).await?);
    ensure(first == second, || "two calls of instance_types() differ".into())?;
    ensure(Arc::ptr_eq(&first, &second), || {
        "two calls of instance_types() give equal values, but not the same one: callers think that something has changed".into()
    })
}

/// An offering that runs out of capacity, and one that comes back after a time, make `instance_types` another value, each once.
pub async fn offerings_that_change_make_another_answer(harness: &dyn Harness) -> Kept {
    let Some((claim, unavailable_for)) = harness.exhausted_node_claim("conformance-exhausted") else {
        return Ok(());
    };
    let before = instance_types(harness).await?;
    match harness.provider().create(&claim).await {
        Err(CloudError::InsufficientCapacity(_)) => {}
        other => return Err(format!("expected InsufficientCapacity, got {other:?}")),
    }
    let without = instance_types(harness).await?;
    ensure(!Arc::ptr_eq(&before, &without) && before != without, || {
        "an offering has run out, and instance_types() gives what it gave before".into()
    })?;
    let again = instance_types(harness).await?;
    ensure(Arc::ptr_eq(&without, &again), || {
        "nothing has changed since an offering ran out, and instance_types() gives another value".into()
    })?;
    harness.clock().sleep(unavailable_for + POLL).await;
    let returned = instance_types(harness).await?;
    ensure(!Arc::ptr_eq(&without, &returned) && returned == before, || {
        format!(
            "{} s after an offering ran out it is not offered again",
            unavailable_for.as_secs()
        )
    })
}

/// The answer of `create` has provider ID, labels, capacity and allocatable, and they agree with an offering and with what
/// the NodeClaim asked for.
pub async fn create_describes_the_node(harness: &dyn Harness) -> Kept {
    let claim = harness.node_claim("conformance-describe");
    let created = create(harness, &claim).await?;
    let verdict = check_created(harness, &claim, &created).await;
    terminate(harness, &created).await?;
    verdict
}

async fn check_created(harness: &dyn Harness, claim: &NodeClaim, created: &NodeClaim) -> Kept {
    ensure(created.provider_id().is_some(), || {
        "create gave no status.providerID".into()
    })?;
    for key in NODE_LABELS {
        ensure(created.label(key).is_some_and(|value| !value.is_empty()), || {
            format!("label {key} is missing")
        })?;
    }
    let empty = BTreeMap::new();
    let node_labels = created.metadata.labels.as_ref().unwrap_or(&empty);
    let own = Requirements::from_labels(node_labels);
    for requirement in &claim.spec.requirements {
        let wanted = Requirement::parse(
            &requirement.key,
            requirement.operator.as_str(),
            &requirement.values,
        )
        .map_err(|error| format!("the harness's NodeClaim has a bad requirement: {error}"))?;
        ensure(own.get(&requirement.key).has_intersection(&wanted), || {
            format!(
                "label {}={:?} is not what the NodeClaim asked for",
                requirement.key,
                node_labels.get(&requirement.key)
            )
        })?;
    }
    let types = instance_types(harness).await?;
    let label = |key| created.label(key).unwrap_or_default();
    let Some(instance_type) = types.iter().find(|it| it.name == label(labels::INSTANCE_TYPE)) else {
        return Err(format!(
            "launched the unlisted instance type {}",
            label(labels::INSTANCE_TYPE)
        ));
    };
    ensure(
        instance_type
            .price_of(label(labels::ZONE), label(labels::CAPACITY_TYPE))
            .is_some(),
        || {
            format!(
                "{} is not offered as {} in {}",
                instance_type.name,
                label(labels::CAPACITY_TYPE),
                label(labels::ZONE)
            )
        },
    )?;
    let status = created.status.as_ref().ok_or("create gave no status")?;
    let amounts =
        |what: &str, map| Resources::from_quantities(map).map_err(|error| format!("{what}: {error}"));
    let capacity = amounts("capacity", &status.capacity)?;
    let allocatable = amounts("allocatable", &status.allocatable)?;
    for resource in ["cpu", "memory", "pods"] {
        ensure(allocatable.get(resource) > 0, || {
            format!("no allocatable {resource}")
        })?;
        ensure(allocatable.get(resource) <= capacity.get(resource), || {
            format!("allocatable {resource} exceeds capacity")
        })?;
    }
    Ok(())
}

/// An instance is there after `create`, once, and gone some time after `delete`.
pub async fn create_get_list_delete(harness: &dyn Harness) -> Kept {
    let provider = harness.provider();
    let created = create(harness, &harness.node_claim("conformance-life")).await?;
    let id = created
        .provider_id()
        .ok_or("create gave no status.providerID")?
        .to_owned();
    let got = provider
        .get(&id)
        .await
        .map_err(|error| format!("get after create: {error}"))?;
    ensure(got.provider_id() == Some(&id), || {
        format!("get({id}) gave {:?}", got.provider_id())
    })?;
    ensure(
        got.label(labels::INSTANCE_TYPE) == created.label(labels::INSTANCE_TYPE),
        || "get and create name different instance types".into(),
    )?;
    let listed = list(harness).await?;
    let matches: Vec<&NodeClaim> = listed
        .iter()
        .filter(|claim| claim.provider_id() == Some(&id))
        .collect();
    ensure(matches.len() == 1, || {
        format!("list has the new instance {} times", matches.len())
    })?;
    ensure(matches[0].metadata.creation_timestamp.is_some(), || {
        "list gives no creationTimestamp".into()
    })?;
    let ids: Vec<Option<&str>> = listed.iter().map(NodeClaim::provider_id).collect();
    ensure(ids.is_sorted(), || "list is not ordered by provider ID".into())?;
    terminate(harness, &created).await?;
    ensure(
        !list(harness)
            .await?
            .iter()
            .any(|claim| claim.provider_id() == Some(&id)),
        || "list still has an instance that delete calls gone".into(),
    )?;
    match provider.get(&id).await {
        Err(error) if error.is_not_found() => Ok(()),
        other => Err(format!(
            "get of a gone instance: expected NodeClaimNotFound, got {other:?}"
        )),
    }
}

/// Two NodeClaims never get one instance.
pub async fn claims_do_not_share_instances(harness: &dyn Harness) -> Kept {
    let mut created = Vec::new();
    for name in ["conformance-one", "conformance-two"] {
        created.push(create(harness, &harness.node_claim(name)).await?);
    }
    let ids: BTreeSet<Option<&str>> = created.iter().map(NodeClaim::provider_id).collect();
    let verdict = ensure(ids.len() == created.len(), || {
        format!("two NodeClaims share {ids:?}")
    });
    for claim in &created {
        terminate(harness, claim).await?;
    }
    verdict
}

/// `get` and `delete` of what never was say `NodeClaimNotFound`.
pub async fn unknown_instances_are_not_found(harness: &dyn Harness) -> Kept {
    let created = create(harness, &harness.node_claim("conformance-unknown")).await?;
    let real = created
        .provider_id()
        .ok_or("create gave no status.providerID")?
        .to_owned();
    let mut stranger = created.clone();
    let unknown = harness.unknown_provider_id(&real);
    stranger.metadata.name = Some("conformance-never-was".into());
    stranger.metadata.uid = Some("00000000-0000-0000-0000-00000000dead".into());
    stranger.status.get_or_insert_default().provider_id = Some(unknown.clone());
    let got = harness.provider().get(&unknown).await;
    let deleted = harness.provider().delete(&stranger).await;
    let survivor = harness.provider().get(&real).await;
    terminate(harness, &created).await?;
    ensure(matches!(&got, Err(error) if error.is_not_found()), || {
        format!("get of an unknown instance: expected NodeClaimNotFound, got {got:?}")
    })?;
    ensure(matches!(&deleted, Err(error) if error.is_not_found()), || {
        format!("delete of an unknown instance: expected NodeClaimNotFound, got {deleted:?}")
    })?;
    survivor
        .map(drop)
        .map_err(|error| format!("delete of an unknown instance hit another one: {error}"))
}

/// A NodeClaim that no offering satisfies is told `InsufficientCapacity`, and nothing is launched.
pub async fn impossible_claims_lack_capacity(harness: &dyn Harness) -> Kept {
    let before = list(harness).await?.len();
    match harness
        .provider()
        .create(&harness.impossible_node_claim("conformance-impossible"))
        .await
    {
        Err(CloudError::InsufficientCapacity(_)) => {}
        other => return Err(format!("expected InsufficientCapacity, got {other:?}")),
    }
    let after = list(harness).await?.len();
    ensure(before == after, || {
        format!("a failed create changed the number of instances from {before} to {after}")
    })
}

/// A missing NodeClass is one of the two errors after which the core deletes the NodeClaim (P §9.2).
pub async fn a_missing_node_class_is_named(harness: &dyn Harness) -> Kept {
    let Some(claim) = harness.node_claim_without_class("conformance-classless") else {
        return Ok(());
    };
    match harness.provider().create(&claim).await {
        Err(CloudError::InsufficientCapacity(_) | CloudError::NodeClassNotReady(_)) => Ok(()),
        other => Err(format!(
            "expected InsufficientCapacity or NodeClassNotReady, got {other:?}"
        )),
    }
}

async fn instance_types(harness: &dyn Harness) -> Result<Arc<[InstanceType]>, String> {
    let pool = harness.node_pool();
    harness
        .provider()
        .instance_types(&pool)
        .await
        .map_err(|error| format!("instance_types: {error}"))
}

/// Launches, and gives the claim back as the core would store it: with the provider's labels, annotations and status.
async fn create(harness: &dyn Harness, claim: &NodeClaim) -> Result<NodeClaim, String> {
    let created = harness
        .provider()
        .create(claim)
        .await
        .map_err(|error| format!("create: {error}"))?;
    let mut stored = claim.clone();
    stored.status = created.status;
    let own = stored.metadata.labels.take().unwrap_or_default();
    let mut merged = created.metadata.labels.unwrap_or_default();
    merged.extend(own);
    stored.metadata.labels = Some(merged);
    // Hashes of classes are among them.
    if let Some(annotations) = created.metadata.annotations {
        let own = stored.metadata.annotations.get_or_insert_default();
        own.extend(annotations);
    }
    Ok(stored)
}

async fn list(harness: &dyn Harness) -> Result<Vec<NodeClaim>, String> {
    harness
        .provider()
        .list()
        .await
        .map_err(|error| format!("list: {error}"))
}

/// Deletes until the provider says "gone"; every call on the way must succeed.
async fn terminate(harness: &dyn Harness, claim: &NodeClaim) -> Kept {
    let clock = harness.clock();
    let start = clock.now();
    loop {
        match harness.provider().delete(claim).await {
            Err(error) if error.is_not_found() => return Ok(()),
            Ok(()) => {}
            Err(error) => return Err(format!("delete: {error}")),
        }
        if clock.since(start) > TERMINATION_LIMIT {
            return Err(format!("not gone {} s after delete", TERMINATION_LIMIT.as_secs()));
        }
        clock.sleep(POLL).await;
    }
}

fn ensure(promise: bool, broken: impl FnOnce() -> String) -> Kept {
    if promise { Ok(()) } else { Err(broken()) }
}
