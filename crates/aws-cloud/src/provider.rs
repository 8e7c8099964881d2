//! AWS as a CloudProvider (P §14, A6, A7).
//!
//! Owns the answers to core. What a call needs is in the modules beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::api::DynamicObject;
use spokeshave_api::{EC2NodeClass, NodeClaim, NodeOverlay, NodePool};
use spokeshave_mirror::{Mirror, Rounds};
use spokeshave_model::{CapacityType, InstanceType, PriceFeed};
use spokeshave_ports::{
    CloudError, CloudFuture, CloudProvider, Interruption, Interruptions, Measurement, NodeClassKind,
    RepairPolicy, SharedClock, SharedWrites, WatchFailures,
};
use spokeshave_provider_aws::addresses::Addresses;
use spokeshave_provider_aws::drift;
use spokeshave_provider_aws::errors::ApiError;
use spokeshave_provider_aws::instances::{self, LIVE_STATES};
use spokeshave_provider_aws::replies::{self, Instance};
use spokeshave_provider_aws::requests::Filter;
use spokeshave_provider_aws::requests::look_up::InstancesRequest;
use spokeshave_provider_aws::tags;
use spokeshave_provider_aws::user_data::Cluster;

use crate::batch::Fleets;
use crate::described::Described;
use crate::dns::Dns;
use crate::gather::{Answers, Gather};
use crate::in_hand::Messages;
use crate::looked_up::LookedUp;
use crate::market::Market;
use crate::meter::Meter;
use crate::notices::{Hindrances, Notices};
use crate::options::AwsOptions;
use crate::ports::Aws;
use crate::recent::Recent;
use crate::templates::Templates;
use crate::verdicts::Verdicts;
use crate::version::Version;

const MINUTES: u64 = 60;

/// Conditions of a Node that mean that it is broken, and for how many minutes they are borne.
const REPAIR: [(&str, &str, u64); 7] = [
    ("Ready", "False", 30),
    ("Ready", "Unknown", 30),
    ("AcceleratedHardwareReady", "False", 10),
    ("StorageReady", "False", 30),
    ("NetworkingReady", "False", 30),
    ("KernelReady", "False", 30),
    ("ContainerRuntimeReady", "False", 30),
];

fn repair_policies() -> Vec<RepairPolicy> {
    let policies = REPAIR.map(|(condition, status, minutes)| RepairPolicy {
        condition_type: condition.to_owned(),
        condition_status: status.to_owned(),
        toleration: Duration::from_secs(minutes * MINUTES),
    });
    policies.into()
}

/// AWS. Clones are the same.
#[derive(Clone)]
pub struct AwsProvider(Arc<Inner>);

/// What is known of an instance without asking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) zone: String,
    pub(crate) instance_type: String,
    pub(crate) capacity_type: CapacityType,
}

pub(crate) struct Inner {
    pub(crate) aws: Aws,
    /// For reading: what is written goes through core.
    pub(crate) client: kube::Client,
    pub(crate) clock: SharedClock,
    pub(crate) options: AwsOptions,
    pub(crate) market: Market,
    pub(crate) classes: Mirror<EC2NodeClass>,
    pub(crate) claims: Mirror<NodeClaim>,
    pub(crate) pools: Mirror<NodePool>,
    pub(crate) overlays: Mirror<NodeOverlay>,
    /// Of these copies.
    pub(crate) watch_failures: WatchFailures,
    pub(crate) verdicts: Verdicts,
    pub(crate) templates: Templates,
    pub(crate) recent: Recent,
    described: Gather<Instance>,
    ended: Gather<()>,
    pub(crate) fleets: Fleets,
    pub(crate) messages: Messages,
    pub(crate) notices: Notices,
    pub(crate) hindrances: Hindrances,
    pub(crate) seen: Described,
    pub(crate) looked_up: LookedUp,
    pub(crate) rounds: Rounds,
    pub(crate) version: Version,
    pub(crate) dns: Dns,
    /// Launches under way give back what they do not take.
    pub(crate) addresses: Arc<Mutex<Addresses>>,
    /// The cluster, as EKS says.
    eks: Mutex<Option<replies::Cluster>>,
    /// Whether EKS has last refused to say so, or has not answered for too long.
    pub(crate) eks_refuses: AtomicBool,
    known: Mutex<BTreeMap<String, Known>>,
    node_classes: [NodeClassKind; 1],
    repair_policies: Vec<RepairPolicy>,
}

impl fmt::Debug for AwsProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwsProvider")
            .field("options", &self.0.options)
            .finish_non_exhaustive()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An error of a call, for core.
pub(crate) fn cloud_error(what: &'static str, error: &ApiError) -> CloudError {
    if error.code.is_empty() {
        return CloudError::Timeout(format!("{what}: {}", error.message));
    }
    CloudError::Other(error.told(what))
}

/// An EC2NodeClass as core has seen it.
fn read_class(object: Option<&DynamicObject>) -> Result<Option<EC2NodeClass>, CloudError> {
    let Some(object) = object else {
        return Ok(None);
    };
    let class = object.clone().try_parse::<EC2NodeClass>();
    class.map(Some).map_err(|error| {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        CloudError::Other(format!(
            "EC2NodeClass {name} cannot be read ({error}); apply it again with the fields of its definition"
        ))
    })
}

impl AwsProvider {
    /// AWS, reached by these services, for the cluster that the client speaks to.
    #[must_use]
    pub fn new(aws: Aws, client: kube::Client, clock: SharedClock, options: AwsOptions) -> Self {
        AwsProvider(Arc::new(Inner {
            market: Market::new(&options.region),
            classes: Mirror::default(),
            claims: Mirror::default(),
            pools: Mirror::default(),
            overlays: Mirror::default(),
            watch_failures: WatchFailures::default(),
            verdicts: Verdicts::default(),
            templates: Templates::default(),
            recent: Recent::default(),
            described: Gather::new("describe_instances", aws.meter.clone()),
            ended: Gather::new("terminate_instances", aws.meter.clone()),
            fleets: Fleets::counted(aws.meter.clone()),
            messages: Messages::default(),
            notices: Notices::default(),
            hindrances: Hindrances::default(),
            seen: Described::default(),
            looked_up: LookedUp::default(),
            rounds: Rounds::default(),
            version: Version::new(options.kubernetes_minor),
            dns: Dns::new(options.cluster_dns),
            addresses: Arc::default(),
            eks: Mutex::default(),
            eks_refuses: AtomicBool::default(),
            known: Mutex::default(),
            node_classes: [NodeClassKind {
                group: EC2NodeClass::GROUP.to_owned(),
                version: EC2NodeClass::VERSION.to_owned(),
                kind: EC2NodeClass::KIND.to_owned(),
                plural: EC2NodeClass::PLURAL.to_owned(),
            }],
            repair_policies: repair_policies(),
            aws,
            client,
            clock,
            options,
        }))
    }

    /// Every metric family of the provider, without series.
    #[must_use]
    pub fn families() -> Vec<Measurement> {
        let mut families = Market::new("").measurements();
        families.extend(Meter::default().measurements());
        families
    }

    /// Labels that NodePools may use besides core's.
    #[must_use]
    pub fn well_known_labels(&self) -> Vec<String> {
        spokeshave_provider_aws::labels::WELL_KNOWN
            .iter()
            .map(|label| (*label).to_owned())
            .collect()
    }
}

impl Inner {
    /// The kind of its classes.
    pub(crate) fn kind(&self) -> &NodeClassKind {
        &self.node_classes[0]
    }

    pub(crate) fn addresses(&self) -> MutexGuard<'_, Addresses> {
        locked(&self.addresses)
    }

    /// The cluster as nodes are told of it: settings first, then what EKS and the cluster itself say, then how the operator reaches it.
    pub(crate) fn cluster(&self) -> Cluster {
        let eks = locked(&self.eks).clone().unwrap_or_default();
        let some = |text: String| Some(text).filter(|text| !text.is_empty());
        let cidr = eks.service_ipv6_cidr.or(eks.service_ipv4_cidr);
        let mut cluster = self.options.cluster(cidr, self.dns.address());
        if cluster.endpoint.is_empty() {
            cluster.endpoint = eks.endpoint;
        }
        let told = cluster.ca_bundle.or_else(|| some(eks.certificate_authority));
        cluster.ca_bundle = told.or_else(|| self.options.own_ca_bundle.clone());
        cluster
    }

    /// The cluster as EKS describes it, if it has.
    pub(crate) fn described_cluster(&self) -> Option<replies::Cluster> {
        locked(&self.eks).clone()
    }

    pub(crate) fn set_cluster(&self, cluster: replies::Cluster) {
        *locked(&self.eks) = Some(cluster);
    }

    pub(crate) fn class_of(&self, claim: &NodeClaim) -> Option<Arc<EC2NodeClass>> {
        self.classes.get(&claim.spec.node_class_ref.name)
    }

    pub(crate) fn remember(&self, id: &str, zone: &str, instance_type: &str, capacity_type: CapacityType) {
        let known = Known {
            zone: zone.to_owned(),
            instance_type: instance_type.to_owned(),
            capacity_type,
        };
        locked(&self.known).insert(id.to_owned(), known);
    }

    pub(crate) fn known(&self, id: &str) -> Option<Known> {
        locked(&self.known).get(id).cloned()
    }

    /// All instances of this cluster that exist.
    pub(crate) async fn instances(&self) -> Result<Vec<Instance>, CloudError> {
        let request = InstancesRequest {
            filters: vec![
                Filter::tag(tags::NODE_POOL, "*"),
                Filter::tag(tags::NODE_CLASS, "*"),
                Filter::tag(tags::CLUSTER_NAME, &self.options.cluster_name),
                Filter::new("instance-state-name", LIVE_STATES),
            ],
            ..InstancesRequest::default()
        };
        let found = self.aws.ec2.instances(&request).await;
        let mut found = found.map_err(|error| {
            let effect = "instances are not listed, and those without NodeClaim not terminated";
            self.tell_denied("ec2:DescribeInstances", effect, &error);
            cloud_error("ec2:DescribeInstances", &error)
        })?;
        found.retain(|instance| instances::is_ours(instance, &self.options.cluster_name));
        found.extend(self.see(&found));
        found.sort_by(|a, b| (&a.zone, &a.id).cmp(&(&b.zone, &b.id)));
        let mut known = locked(&self.known);
        let unknown = self.recent.unknown(self.clock.now());
        let unknown: BTreeSet<&str> = unknown
            .iter()
            .filter_map(|claim| instances::instance_id(claim.provider_id()?))
            .collect();
        known.retain(|id, _| unknown.contains(id.as_str()));
        let told = found.iter().map(|instance| {
            let one = Known {
                zone: instance.zone.clone(),
                instance_type: instance.instance_type.clone(),
                capacity_type: instances::capacity_type(instance),
            };
            (instance.id.clone(), one)
        });
        known.extend(told);
        Ok(found)
    }

    /// One instance; `NodeClaimNotFound` when it has ended or is not there.
    pub(crate) async fn instance(&self, provider_id: &str) -> Result<Instance, CloudError> {
        let Some(id) = instances::instance_id(provider_id) else {
            return Err(CloudError::NodeClaimNotFound(format!(
                "provider ID {provider_id:?} is not one of AWS; expected aws:///<zone>/<instance ID>"
            )));
        };
        let zone = instances::zone(provider_id).unwrap_or_default();
        if self.is_shifted(zone)
            && let Some(seen) = self.seen(id)
        {
            return Ok(seen);
        }
        let gone = || CloudError::NodeClaimNotFound(format!("instance {id} does not exist"));
        let found = self
            .described
            .ask(id, &self.clock, |ids| self.describe(ids).boxed());
        match found.await {
            // What EC2 does not find in a shifted zone may be there all the same (D-296).
            Ok(None) if self.is_shifted(zone) => Err(Inner::postponed(zone)),
            Ok(found) => found.ok_or_else(gone),
            Err(error) => Err(cloud_error("ec2:DescribeInstances", &error)),
        }
    }

    /// Those of these instances that exist.
    async fn describe(&self, ids: Vec<String>) -> Answers<Instance> {
        let request = InstancesRequest {
            instance_ids: ids,
            filters: vec![Filter::new("instance-state-name", LIVE_STATES)],
        };
        let found = self.aws.ec2.instances(&request).await?;
        let live = found
            .into_iter()
            .filter(|one| LIVE_STATES.contains(&one.state.as_str()));
        Ok(live.map(|one| (one.id.clone(), one)).collect())
    }

    async fn terminate(&self, ids: Vec<String>) -> Answers<()> {
        let ended = self.aws.ec2.terminate_instances(&ids).await?;
        Ok(ended.into_iter().map(|one| (one.id, ())).collect())
    }

    fn type_of(&self, instance: &Instance) -> Option<InstanceType> {
        let class = self.classes.get(instance.tags.get(tags::NODE_CLASS)?)?;
        self.market
            .instance_type(&class, &instance.instance_type, &self.options, self.clock.now())
    }

    fn as_node_claim(&self, instance: &Instance) -> NodeClaim {
        let mut claim = instances::as_node_claim(instance, self.type_of(instance).as_ref());
        if claim.metadata.deletion_timestamp.is_some() {
            claim.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
                self.clock.now(),
            ));
        }
        claim
    }

    /// An instance as a NodeClaim, also when EC2 does not tell of it yet.
    async fn get(&self, provider_id: &str) -> Result<NodeClaim, CloudError> {
        match self.instance(provider_id).await {
            Ok(instance) => Ok(self.as_node_claim(&instance)),
            Err(error) if error.is_not_found() => {
                let unknown = self.recent.unknown_one(provider_id, self.clock.now());
                unknown.ok_or(error)
            }
            Err(error) => Err(error),
        }
    }

    async fn list(&self) -> Result<Vec<NodeClaim>, CloudError> {
        let before = self.fleets.unheard_since(self.clock.now());
        let found = self.instances().await?;
        let mut claims: Vec<NodeClaim> = found.iter().map(|one| self.as_node_claim(one)).collect();
        let now = self.clock.now();
        let since = before.into_iter().chain(self.fleets.unheard_since(now)).min();
        self.recent.complete(&mut claims, now);
        if let Some(since) = since {
            instances::spare_unheard(&mut claims, since, now);
        }
        Ok(claims)
    }

    async fn delete(&self, claim: &NodeClaim) -> Result<(), CloudError> {
        let launched;
        let provider_id = match claim.provider_id().filter(|id| !id.is_empty()) {
            Some(provider_id) => provider_id,
            // Its launch was not written down: what this process has launched for it ends, and there is nothing else to end. What EC2 may have launched for a
            // call without an answer is garbage collection's from now on.
            None => {
                let uid = claim.metadata.uid.as_deref().unwrap_or_default();
                self.recent.give_up(uid);
                launched = self.recent.of(uid);
                let found = launched.as_ref().and_then(NodeClaim::provider_id);
                found.ok_or_else(|| {
                    let name = claim.name();
                    CloudError::NodeClaimNotFound(format!("NodeClaim {name} has no instance"))
                })?
            }
        };
        let zone = instances::zone(provider_id).unwrap_or_default();
        if self.is_shifted(zone) {
            return Err(Inner::postponed(zone));
        }
        let id = match self.instance(provider_id).await {
            Ok(instance) if instance.state == "shutting-down" => return Ok(()),
            Ok(instance) => instance.id,
            // EC2 does not tell of what it has just launched, and ends it all the same.
            Err(error) if error.is_not_found() => {
                let unknown = self.recent.unknown_one(provider_id, self.clock.now());
                let id = unknown.and_then(|_| instances::instance_id(provider_id));
                id.ok_or(error)?.to_owned()
            }
            Err(error) => return Err(error),
        };
        let terminated = self
            .ended
            .ask(&id, &self.clock, |ids| self.terminate(ids).boxed());
        match terminated.await {
            Ok(Some(())) => {
                self.recent.forget(provider_id);
                Ok(())
            }
            Ok(None) => Err(CloudError::NodeClaimNotFound(format!(
                "instance {id} does not exist"
            ))),
            Err(error) => {
                let zone = self.known(&id).map(|known| known.zone).unwrap_or_default();
                self.aws.meter.termination_failed(&zone);
                self.tell_denied("ec2:TerminateInstances", "no instance is terminated", &error);
                Err(cloud_error("ec2:TerminateInstances", &error))
            }
        }
    }

    async fn is_drifted(
        &self,
        claim: &NodeClaim,
        class: Option<&DynamicObject>,
    ) -> Result<Option<String>, CloudError> {
        let Some(class) = read_class(class)? else {
            return Ok(None);
        };
        if drift::is_static(&class, claim) {
            return Ok(Some(drift::Drift::NodeClass.as_str().to_owned()));
        }
        let name = claim
            .label(spokeshave_api::labels::INSTANCE_TYPE)
            .unwrap_or_default();
        let instance_type = self
            .market
            .instance_type(&class, name, &self.options, self.clock.now());
        let Some(instance_type) = instance_type else {
            return Err(CloudError::Other(format!(
                "EC2NodeClass {} knows no instance type {name:?}, which NodeClaim {} has",
                class.name(),
                claim.name()
            )));
        };
        let provider_id = claim.provider_id().unwrap_or_default();
        let instance = match self.instance(provider_id).await {
            Ok(instance) => instance,
            // What was launched a moment ago is as it was asked for.
            Err(error)
                if error.is_not_found()
                    && self.recent.unknown_one(provider_id, self.clock.now()).is_some() =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let facts = drift::Instance {
            capacity_reservation_id: instances::reservation(&instance).map(str::to_owned),
            image_id: instance.image_id,
            security_group_ids: instance.security_group_ids.into_iter().collect(),
            subnet_id: instance.subnet_id,
        };
        let drifted = drift::check(&class, claim, &facts, &instance_type);
        let drifted = drifted.map_err(|error| CloudError::Other(error.to_string()))?;
        Ok(drifted.map(|drift| drift.as_str().to_owned()))
    }

    async fn instance_types(&self, pool: &NodePool) -> Result<Arc<[InstanceType]>, CloudError> {
        let name = &pool.node_class_ref().name;
        let class = self.classes.find(name);
        let class = class.map_err(|absent| absent.types_error(EC2NodeClass::KIND, name))?;
        self.sold(&class)
    }
}

impl CloudProvider for AwsProvider {
    fn name(&self) -> &'static str {
        "aws"
    }

    fn supported_node_classes(&self) -> &[NodeClassKind] {
        &self.0.node_classes
    }

    fn create<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, NodeClaim> {
        self.0.create(claim, None).boxed()
    }

    fn create_from<'a>(
        &'a self,
        claim: &'a NodeClaim,
        types: &'a [InstanceType],
    ) -> CloudFuture<'a, NodeClaim> {
        self.0.create(claim, Some(types)).boxed()
    }

    fn delete<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, ()> {
        self.0.delete(claim).boxed()
    }

    fn get<'a>(&'a self, provider_id: &'a str) -> CloudFuture<'a, NodeClaim> {
        self.0.get(provider_id).boxed()
    }

    fn list(&self) -> CloudFuture<'_, Vec<NodeClaim>> {
        self.0.list().boxed()
    }

    fn notices(&self) -> Option<spokeshave_ports::Notices<'_>> {
        Some(self.0.notices.read())
    }

    fn price_feed(&self) -> PriceFeed {
        self.0.market.price_feed()
    }

    fn watch_failures(&self) -> Option<&WatchFailures> {
        Some(&self.0.watch_failures)
    }

    fn measurements(&self) -> Vec<Measurement> {
        let mut measurements = self.0.market.measurements();
        measurements.extend(self.0.aws.meter.measurements());
        measurements
    }

    fn instance_types<'a>(&'a self, pool: &'a NodePool) -> CloudFuture<'a, Arc<[InstanceType]>> {
        self.0.instance_types(pool).boxed()
    }

    fn is_drifted<'a>(
        &'a self,
        claim: &'a NodeClaim,
        class: Option<&'a DynamicObject>,
    ) -> CloudFuture<'a, Option<String>> {
        self.0.is_drifted(claim, class).boxed()
    }

    fn repair_policies(&self) -> &[RepairPolicy] {
        &self.0.repair_policies
    }

    fn interruptions(&self) -> Option<Interruptions<'_>> {
        Some(self.0.listen())
    }

    fn acknowledge<'a>(&'a self, message: &'a Interruption) -> CloudFuture<'a, ()> {
        self.0.acknowledge(message).boxed()
    }

    fn lead(&self, writes: SharedWrites) -> BoxFuture<'_, ()> {
        async move { self.0.lead(&*writes).await }.boxed()
    }

    fn follow(&self) -> BoxFuture<'_, ()> {
        async move {
            futures::join!(self.0.follow(), self.0.read_reservations(true));
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests;
