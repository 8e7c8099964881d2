//! Azure as a CloudProvider (P §14, Z7).
//!
//! Owns the answers to core. What a call needs is in the modules beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use kube::api::DynamicObject;
use spokeshave_api::{AKSNodeClass, NodeClaim, NodePool};
use spokeshave_mirror::{Absent, Messages};
use spokeshave_model::{CapacityType, InstanceType, PriceFeed};
use spokeshave_ports::{
    CloudError, CloudFuture, CloudProvider, Interruption, Interruptions, NodeClassKind, RepairPolicy,
    SharedClock, SharedWrites, WatchFailures,
};
use spokeshave_provider_azure::aks_machines::{MachinePool, former_pools, machine_name};
use spokeshave_provider_azure::drift;
use spokeshave_provider_azure::errors::ArmError;
use spokeshave_provider_azure::instance_types::ProvisionMode;
use spokeshave_provider_azure::{labels, names, tags};

use crate::calls::Calls;
use crate::client::{Client, Operation};
use crate::described::Machine;
use crate::galleries::Galleries;
use crate::market::Market;
use crate::objects::Objects;
use crate::options::AzureOptions;
use crate::ports::Outside;

/// Resource Graph may be so far behind ARM: what was launched or has ended within this time is not taken from it.
const GRAPH_LAG: SignedDuration = SignedDuration::from_mins(5);

/// Conditions of a Node that mean that it is broken, and for how many minutes they are borne (Z7).
/// `PreemptionScheduled` is none of them: it is an interruption, with its own deadline and without a breaker (Z8).
const REPAIR: [(&str, &str, u64); 3] = [
    ("Ready", "False", 10),
    ("Ready", "Unknown", 10),
    ("kubernetes.azure.com/NodeHealthy", "False", 0),
];

/// Azure. Clones are the same.
#[derive(Clone)]
pub struct AzureProvider(pub(crate) Arc<Inner>);

/// A machine that ARM is still making.
#[derive(Debug, Clone)]
pub(crate) struct Pending {
    pub(crate) machine: String,
    pub(crate) operation: Operation,
    /// When the machine was asked for.
    pub(crate) since: Timestamp,
    /// How often in a row the operation could not be read.
    pub(crate) unread: u32,
    pub(crate) instance_type: InstanceType,
    pub(crate) family: String,
    pub(crate) zone: String,
    pub(crate) capacity_type: CapacityType,
}

pub(crate) struct Inner {
    pub(crate) client: Client,
    pub(crate) options: AzureOptions,
    pub(crate) market: Market,
    pub(crate) galleries: Galleries,
    pub(crate) messages: Messages,
    /// The cluster's API server, where there is one.
    pub(crate) objects: Option<Objects>,
    classes: Mutex<BTreeMap<String, Arc<AKSNodeClass>>>,
    /// One launch at a time for each machine's name.
    slots: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
    pending: Mutex<BTreeMap<String, Pending>>,
    /// Machines that were launched lately.
    launched: Mutex<BTreeMap<String, Timestamp>>,
    /// Machines of which ARM has said lately that they do not exist.
    gone: Mutex<BTreeMap<String, Timestamp>>,
    /// Machines of AKS of which the log has said that nobody manages them.
    unmanaged: Mutex<BTreeSet<String>>,
    node_classes: [NodeClassKind; 1],
    repair_policies: Vec<RepairPolicy>,
}

/// An AKSNodeClass as core has seen it.
fn read_class(object: Option<&DynamicObject>) -> Result<Option<AKSNodeClass>, CloudError> {
    let Some(object) = object else {
        return Ok(None);
    };
    let class = object.clone().try_parse::<AKSNodeClass>();
    class.map(Some).map_err(|error| {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        CloudError::Other(format!(
            "AKSNodeClass {name} cannot be read ({error}); apply it again with the fields of its definition"
        ))
    })
}

impl fmt::Debug for AzureProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AzureProvider").finish_non_exhaustive()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An error of a call, for core.
pub(crate) fn cloud_error(what: &str, error: &ArmError) -> CloudError {
    if error.status == 0 && error.code.is_empty() {
        CloudError::Timeout(format!("{what}: {error}"))
    } else {
        CloudError::Other(format!("{what}: {error}"))
    }
}

impl AzureProvider {
    /// Azure, reached through the outside.
    #[must_use]
    pub fn new(outside: Outside, clock: SharedClock, options: AzureOptions) -> Self {
        Self::build(outside, None, clock, options)
    }

    /// The same for a cluster: classes are those of its API server, whose status is kept there, and conditions of its nodes are heard.
    #[must_use]
    pub fn of_cluster(
        outside: Outside,
        client: kube::Client,
        clock: SharedClock,
        options: AzureOptions,
    ) -> Self {
        Self::build(outside, Some(Objects::new(client)), clock, options)
    }

    fn build(outside: Outside, objects: Option<Objects>, clock: SharedClock, options: AzureOptions) -> Self {
        let policies = REPAIR.map(|(condition, status, minutes)| RepairPolicy {
            condition_type: condition.to_owned(),
            condition_status: status.to_owned(),
            toleration: Duration::from_secs(minutes * 60),
        });
        AzureProvider(Arc::new(Inner {
            client: Client::new(outside, clock),
            options,
            market: Market::new(),
            galleries: Galleries::default(),
            messages: Messages::default(),
            objects,
            classes: Mutex::default(),
            slots: Mutex::default(),
            pending: Mutex::default(),
            launched: Mutex::default(),
            gone: Mutex::default(),
            unmanaged: Mutex::default(),
            node_classes: [crate::objects::kind()],
            repair_policies: policies.into(),
        }))
    }

    /// Takes a class in, where there is no API server that has it.
    pub fn put_class(&self, class: AKSNodeClass) {
        locked(&self.0.classes).insert(class.name().to_owned(), Arc::new(class));
    }

    /// A class is gone.
    pub fn remove_class(&self, name: &str) {
        locked(&self.0.classes).remove(name);
    }

    /// Labels that NodePools may use besides core's.
    #[must_use]
    pub fn well_known_labels(&self) -> Vec<String> {
        labels::WELL_KNOWN
            .iter()
            .map(|label| (*label).to_owned())
            .collect()
    }
}

impl Inner {
    pub(crate) fn clock(&self) -> &SharedClock {
        self.client.clock()
    }

    pub(crate) fn calls(&self) -> Calls<'_> {
        Calls {
            client: &self.client,
            options: &self.options,
        }
    }

    /// A class, or why there is none.
    pub(crate) fn find_class(&self, name: &str) -> Result<Arc<AKSNodeClass>, Absent> {
        match &self.objects {
            Some(objects) => objects.classes.find(name),
            None => locked(&self.classes).get(name).cloned().ok_or(Absent::Gone),
        }
    }

    pub(crate) fn class(&self, name: &str) -> Option<Arc<AKSNodeClass>> {
        self.find_class(name).ok()
    }

    pub(crate) fn slot(&self, name: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut slots = locked(&self.slots);
        slots.retain(|_, slot| Arc::strong_count(slot) > 1);
        slots.entry(name.to_owned()).or_default().clone()
    }

    pub(crate) fn follow(&self, pending: Pending) {
        locked(&self.pending).insert(pending.machine.clone(), pending);
    }

    pub(crate) fn pending(&self) -> Vec<Pending> {
        locked(&self.pending).values().cloned().collect()
    }

    /// Nobody looks at the machine's operation any more.
    pub(crate) fn forget_pending(&self, machine: &str) {
        locked(&self.pending).remove(machine);
    }

    /// Whether this is still the operation that is looked at for the machine.
    pub(crate) fn is_pending(&self, one: &Pending) -> bool {
        let pending = locked(&self.pending);
        pending
            .get(&one.machine)
            .is_some_and(|known| known.operation.url == one.operation.url)
    }

    /// An operation is looked at again later; a launch may have replaced it or nobody may be interested in it by now.
    pub(crate) fn look_again(&self, one: Pending) {
        let mut pending = locked(&self.pending);
        if let Some(known) = pending.get_mut(&one.machine)
            && known.operation.url == one.operation.url
        {
            *known = one;
        }
    }

    pub(crate) fn remember(&self, machine: &str) {
        locked(&self.gone).remove(machine);
        locked(&self.launched).insert(machine.to_owned(), self.clock().now());
    }

    pub(crate) fn types_of(&self, class: &AKSNodeClass) -> Result<Arc<[InstanceType]>, CloudError> {
        self.market
            .instance_types(class, &self.options.settings, self.clock().now())
            .ok_or_else(|| CloudError::Other("sizes of the location are not known yet".to_owned()))
    }

    /// Where machines are launched, if AKS makes them.
    pub(crate) fn launch_pool(&self) -> Option<&MachinePool> {
        let pool = self.options.machine_pool.as_ref();
        pool.filter(|_| self.options.settings.mode == ProvisionMode::AksMachine)
    }

    /// Where machines of AKS are looked after.
    fn pools(&self) -> Vec<MachinePool> {
        let named = self.options.machine_pool.as_ref();
        let claims = self.objects.as_ref().and_then(|objects| objects.claims.all());
        let claims = claims.unwrap_or_default();
        // One that a NodeClaim names now, and not when the operator started: another operator has launched there.
        let since = former_pools(claims.iter().map(|claim| &**claim), named);
        let mut pools: Vec<MachinePool> = named
            .into_iter()
            .chain(&self.options.former_pools)
            .cloned()
            .collect();
        for pool in since {
            if !pools.iter().any(|known| known.is_same(&pool)) {
                pools.push(pool);
            }
        }
        pools
    }

    /// The machine at AKS that a virtual machine is, by its name.
    pub(crate) fn aks_name<'a>(&self, vm: &'a str) -> Option<(MachinePool, &'a str)> {
        let mut pools = self.pools().into_iter();
        pools.find_map(|pool| pool.machine_of(vm).map(|name| (pool, name)))
    }

    /// Where AKS has a machine, and under which name; `None` for one that it has not made.
    pub(crate) fn at_aks<'a>(&self, machine: &'a Machine) -> Option<(MachinePool, &'a str)> {
        let aks = machine.aks.as_ref()?;
        let mut pools = self.pools();
        let has_it = pools.iter().position(|pool| pool.has(&aks.id));
        (!pools.is_empty()).then(|| (pools.swap_remove(has_it.unwrap_or(0)), aks.name.as_str()))
    }

    /// A machine by its name at AKS.
    pub(crate) async fn find_aks(
        &self,
        pool: &MachinePool,
        name: &str,
    ) -> Result<Option<Machine>, CloudError> {
        let wrong = |error| cloud_error("looking a machine of AKS up", &error);
        let mut found = self.calls().aks_machine(pool, name).await.map_err(wrong)?;
        if let Some(machine) = &mut found
            && !machine.name.is_empty()
            && !machine.is_being_made()
            && !machine.is_deleting()
            && let Some(aks) = &mut machine.aks
        {
            // AKS says only in lists that a virtual machine is gone.
            let vm = self.calls().machine(&machine.name).await.map_err(wrong)?;
            aks.is_hollow |= vm.is_none();
        }
        Ok(found)
    }

    /// A machine by its virtual machine's name, from whoever has made it.
    pub(crate) async fn find(&self, name: &str) -> Result<Option<Machine>, CloudError> {
        let found = match self.aks_name(name) {
            // One of the same name that was made since is another virtual machine.
            Some((pool, at_aks)) => self
                .find_aks(&pool, at_aks)
                .await?
                .filter(|machine| machine.name == name && !machine.is_hollow()),
            None => {
                let found = self.calls().machine(name).await;
                found.map_err(|error| cloud_error("looking a machine up", &error))?
            }
        };
        if found.is_some() {
            // Made since ARM said that there is none, as by a launch whose reply was lost.
            locked(&self.gone).remove(name);
        } else {
            locked(&self.launched).remove(name);
            locked(&self.gone).insert(name.to_owned(), self.clock().now());
        }
        Ok(found)
    }

    fn name_of<'a>(&self, provider_id: &'a str) -> Result<&'a str, CloudError> {
        self.options.place.machine_of(provider_id).ok_or_else(|| {
            let place = self.options.place.provider_id("<name>");
            CloudError::NodeClaimNotFound(format!(
                "provider ID {provider_id:?} is no machine of this cluster; expected {place}"
            ))
        })
    }

    pub(crate) async fn existing(&self, provider_id: &str) -> Result<Machine, CloudError> {
        let name = self.name_of(provider_id)?;
        let found = self.find(name).await?;
        let ours =
            found.filter(|machine| machine.tag(tags::CLUSTER) == Some(self.options.cluster_name.as_str()));
        ours.ok_or_else(|| CloudError::NodeClaimNotFound(format!("machine {name} does not exist")))
    }

    /// The machine of a NodeClaim whose launch was not written down: what it may have made has a name that is known.
    async fn unwritten(&self, claim: &NodeClaim) -> Result<Machine, CloudError> {
        let found = match self.launch_pool() {
            Some(pool) => self.find_aks(pool, &machine_name(claim.name())).await?,
            None => self.find(&names::machine(claim.name())).await?,
        };
        let ours = found.filter(|machine| {
            machine.tag(tags::CLUSTER) == Some(self.options.cluster_name.as_str())
                && machine.tag(tags::NODE_CLAIM_UID) == Some(claim.uid())
                && !machine.is_hollow()
        });
        let name = claim.name();
        ours.ok_or_else(|| CloudError::NodeClaimNotFound(format!("NodeClaim {name} has no machine")))
    }

    async fn delete(&self, claim: &NodeClaim) -> Result<(), CloudError> {
        let machine = match claim.provider_id() {
            Some(provider_id) => self.existing(provider_id).await?,
            None => self.unwritten(claim).await?,
        };
        self.forget_pending(&machine.name);
        if machine.is_deleting() {
            return Ok(());
        }
        let deleted = match self.at_aks(&machine) {
            Some((pool, name)) => self.calls().delete_aks_machine(&pool, name).await,
            None => self.calls().delete_machine(&machine.name).await,
        };
        deleted
            .map_err(|error| cloud_error("ending a machine", &error))?
            .ok_or_else(|| CloudError::NodeClaimNotFound(format!("machine {} does not exist", machine.name)))
    }

    /// Says of each machine once that nobody looks after it.
    fn warn_of<'a>(&self, machines: impl Iterator<Item = &'a Machine>) {
        for machine in machines {
            if locked(&self.unmanaged).insert(machine.name.clone()) {
                tracing::warn!(
                    machine = machine.name,
                    NodeClaim = machine.tag(tags::AKS_MACHINE).unwrap_or_default(),
                    "AKS has made this machine for this cluster, in an agent pool that no setting and no NodeClaim names: it is not managed. To have it managed, set \
                    MANAGE_EXISTING_AKS_MACHINES=true with AKS_MACHINES_POOL_NAME and ARM_RESOURCE_GROUP of its pool"
                );
            }
        }
    }

    /// What Resource Graph says of virtual machines, and AKS of its own.
    async fn listed(&self) -> Result<Vec<Machine>, CloudError> {
        let listed = self.calls().machines().await;
        let mut listed = listed.map_err(|error| cloud_error("listing machines", &error))?;
        // Once for all machines: NodeClaims are gone through for them.
        let pools = self.pools();
        let is_named = |machine: &Machine| pools.iter().any(|pool| pool.machine_of(&machine.name).is_some());
        // AKS tags the virtual machines that it makes as it was asked to: they are its.
        let is_its = |machine: &Machine| machine.tag(tags::AKS_MACHINE).is_some();
        let strangers = listed
            .iter()
            .filter(|machine| is_its(machine) && !is_named(machine));
        self.warn_of(strangers);
        listed.retain(|machine| !is_its(machine));
        for pool in &pools {
            let made = self.calls().aks_machines(pool).await;
            listed.extend(made.map_err(|error| cloud_error("listing machines of AKS", &error))?);
        }
        Ok(listed)
    }

    /// Machines of this cluster, also those of which only AKS's record is left: as they are listed, but for what was launched or has ended so lately that
    /// lists may not know (Z-050).
    pub(crate) async fn machines(&self) -> Result<Vec<Machine>, CloudError> {
        let listed = self.listed().await?;
        let now = self.clock().now();
        let young = |at: &Timestamp| now.duration_since(*at) < GRAPH_LAG;
        let recent: Vec<String> = {
            let mut launched = locked(&self.launched);
            launched.retain(|_, at| young(at));
            launched.keys().cloned().collect()
        };
        let gone: BTreeMap<String, Timestamp> = {
            let mut gone = locked(&self.gone);
            gone.retain(|_, at| young(at));
            gone.clone()
        };
        let mut found: BTreeMap<String, Machine> = listed
            .into_iter()
            .filter(|machine| !gone.contains_key(&machine.name) || machine.is_hollow())
            .filter(|machine| machine.tag(tags::CLUSTER) == Some(self.options.cluster_name.as_str()))
            .map(|machine| (machine.key().to_owned(), machine))
            .collect();
        for name in recent {
            // The graph's row of a young machine may be from before its end.
            match self.find(&name).await? {
                Some(machine) => drop(found.insert(name, machine)),
                None if found.get(&name).is_some_and(Machine::is_hollow) => {}
                None => drop(found.remove(&name)),
            }
        }
        Ok(found.into_values().collect())
    }

    async fn is_drifted(
        &self,
        claim: &NodeClaim,
        class: Option<&DynamicObject>,
    ) -> Result<Option<String>, CloudError> {
        let Some(class) = read_class(class)? else {
            return Ok(None);
        };
        let machine = self.existing(claim.provider_id().unwrap_or_default()).await?;
        let instance = drift::Instance {
            image_id: machine.asked_image().to_owned(),
            drift_action: machine
                .aks
                .as_ref()
                .map(|aks| aks.drift_action.clone())
                .unwrap_or_default(),
            kubernetes_version: machine
                .tag(tags::KUBERNETES_VERSION)
                .map(str::to_owned)
                .or_else(|| self.objects.as_ref()?.kubelet_version(claim)),
        };
        Ok(drift::check(&class, claim, &instance).map(|drift| drift.as_str().to_owned()))
    }

    fn instance_types(&self, pool: &NodePool) -> Result<Arc<[InstanceType]>, CloudError> {
        let name = &pool.node_class_ref().name;
        let class = self.find_class(name);
        let class = class.map_err(|absent| absent.types_error(AKSNodeClass::KIND, name))?;
        self.types_of(&class)
    }
}

impl CloudProvider for AzureProvider {
    fn name(&self) -> &'static str {
        "azure"
    }

    fn supported_node_classes(&self) -> &[NodeClassKind] {
        &self.0.node_classes
    }

    fn create<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, NodeClaim> {
        self.0.launch(claim, None).boxed()
    }

    fn create_from<'a>(
        &'a self,
        claim: &'a NodeClaim,
        types: &'a [InstanceType],
    ) -> CloudFuture<'a, NodeClaim> {
        self.0.launch(claim, Some(types)).boxed()
    }

    fn delete<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, ()> {
        self.0.delete(claim).boxed()
    }

    fn get<'a>(&'a self, provider_id: &'a str) -> CloudFuture<'a, NodeClaim> {
        async move {
            let machine = self.0.existing(provider_id).await?;
            Ok(self.0.as_node_claim(&machine))
        }
        .boxed()
    }

    fn list(&self) -> CloudFuture<'_, Vec<NodeClaim>> {
        self.0.list().boxed()
    }

    fn instance_types<'a>(&'a self, pool: &'a NodePool) -> CloudFuture<'a, Arc<[InstanceType]>> {
        std::future::ready(self.0.instance_types(pool)).boxed()
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
        Some(self.0.messages.stream(self.0.clock().clone()))
    }

    fn acknowledge<'a>(&'a self, message: &'a Interruption) -> CloudFuture<'a, ()> {
        self.0.messages.acknowledge(&message.id);
        std::future::ready(Ok(())).boxed()
    }

    fn lead(&self, writes: SharedWrites) -> BoxFuture<'_, ()> {
        async move { self.0.lead(&*writes).await }.boxed()
    }

    fn follow(&self) -> BoxFuture<'_, ()> {
        self.0.follow_market().boxed()
    }

    fn price_feed(&self) -> PriceFeed {
        self.0.market.price_feed()
    }

    fn watch_failures(&self) -> Option<&WatchFailures> {
        self.0.objects.as_ref().map(|objects| &objects.watch_failures)
    }
}
