//! The kwok cloud as a CloudProvider (P §14): launch, end, and what exists.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions,
};
use serde_json::json;
use spokeshave_api::{KWOKInstance, KWOKNodeClass, NodeClaim, NodePool};
use spokeshave_model::{CapacityType, InstanceType, still_sold};
use spokeshave_ports::{
    CloudError, CloudFuture, CloudProvider, Entropy, Interruption, Interruptions, NodeClassKind,
    RepairPolicy, SharedClock, WatchFailures, is_conflict,
};

use crate::errors::{gone, request_error};
use crate::launch::{self, Choice, OfferingKey};
use crate::{KwokOptions, keys, record};

/// Time for which a broken Node is left to recover (D-262).
const REPAIR_TOLERATION: Duration = Duration::from_secs(10 * 60);
/// How often a record is read while others write to it.
const LOOKS: u32 = 5;
/// Objects in one page of a list.
const PAGE: u32 = 500;

/// The kwok cloud. Its state is in the cluster; what is in memory (attempts, offerings found without capacity) may be lost.
pub struct KwokProvider {
    pub(crate) client: kube::Client,
    pub(crate) clock: SharedClock,
    pub(crate) entropy: Entropy,
    pub(crate) options: KwokOptions,
    pub(crate) watch_failures: WatchFailures,
    node_classes: [NodeClassKind; 1],
    repair_policies: [RepairPolicy; 2],
    well_known: BTreeSet<String>,
    sells_reservations: bool,
    memory: Mutex<Memory>,
    /// Held from counting reservations to writing the record, so that the last one is not sold twice.
    reservations: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Memory {
    calls: u64,
    attempts: BTreeMap<String, u64>,
    unavailable: BTreeMap<OfferingKey, Timestamp>,
    /// The catalog as it was last given, and what it was made of: the same value again says that nothing has changed, and copying it costs more than
    /// the rest of a pass.
    sold: Option<(Scarce, Arc<[InstanceType]>)>,
}

/// What the catalog has less of than it says.
#[derive(Default, PartialEq, Eq)]
struct Scarce {
    unavailable: BTreeSet<OfferingKey>,
    /// Instances by the reservation that they use.
    reserved: BTreeMap<String, i64>,
}

impl fmt::Debug for KwokProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KwokProvider")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl KwokProvider {
    /// A provider that keeps its instances behind `client`. Start [`run`](Self::run) beside it: that turns instances into Nodes and ends
    /// them.
    #[must_use]
    pub fn new(client: kube::Client, clock: SharedClock, entropy: &Entropy, options: KwokOptions) -> Self {
        let repair = |status: &str| RepairPolicy {
            condition_type: "Ready".to_owned(),
            condition_status: status.to_owned(),
            toleration: REPAIR_TOLERATION,
        };
        let offerings = options
            .catalog
            .instance_types()
            .iter()
            .flat_map(|it| &it.offerings);
        let sells_reservations = offerings
            .into_iter()
            .any(|offering| offering.capacity_type() == Some(CapacityType::Reserved));
        Self {
            client,
            clock,
            entropy: entropy.child("kwok"),
            node_classes: [NodeClassKind {
                group: KWOKNodeClass::GROUP.to_owned(),
                version: KWOKNodeClass::VERSION.to_owned(),
                kind: KWOKNodeClass::KIND.to_owned(),
                plural: KWOKNodeClass::PLURAL.to_owned(),
            }],
            repair_policies: [repair("False"), repair("Unknown")],
            well_known: options.catalog.well_known_labels(),
            sells_reservations,
            memory: Mutex::default(),
            reservations: tokio::sync::Mutex::default(),
            watch_failures: WatchFailures::default(),
            options,
        }
    }

    /// Keys that users may name in requirements although no NodePool defines them (P §1.7).
    #[must_use]
    pub fn well_known_labels(&self) -> &BTreeSet<String> {
        &self.well_known
    }

    pub(crate) fn instances(&self) -> Api<KWOKInstance> {
        Api::all(self.client.clone())
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes an instance, or finds it; with `corrected` types, of these.
    async fn launch(
        &self,
        claim: &NodeClaim,
        corrected: Option<&[InstanceType]>,
    ) -> Result<NodeClaim, CloudError> {
        let name = claim.name();
        if name.is_empty() || claim.uid().is_empty() {
            return Err(CloudError::Other(
                "launch needs a NodeClaim with metadata.name and metadata.uid".to_owned(),
            ));
        }
        if let Some(instance) = self.find(&record::instance_name(claim)).await? {
            return own(claim, &instance);
        }
        let (call, attempt) = self.count_attempt(claim);
        if self
            .options
            .launch_errors
            .strike(&self.entropy.child("launch-error"), name, call, attempt)
        {
            return Err(CloudError::Create {
                reason: "InjectedLaunchError".to_owned(),
                message: format!("injected failure of attempt {attempt} for NodeClaim {name}"),
            });
        }
        let class_delay = self.node_class_delay(claim).await?;
        let requirements = launch::requirements_of(claim)?;
        let selling = if self.sells_reservations {
            Some(self.reservations.lock().await)
        } else {
            None
        };
        let types = match corrected {
            Some(corrected) => still_sold(corrected, &self.sold().await?),
            None => self.sold().await?,
        };
        let tie_break = self.entropy.child("offering");
        let candidates = launch::candidates(claim, &requirements, &types, &self.well_known, &tie_break)?;
        let choice = self.with_capacity(claim, &candidates)?;
        let delay = self.registration_delay(claim, choice, class_delay, call, attempt);
        let wanted = launch::new_record(claim, &requirements, choice, &self.options, delay);
        let instance = self.write_record(&wanted).await?;
        drop(selling);
        let answer = own(claim, &instance)?;
        if self
            .options
            .hanging_calls
            .strike(&self.entropy.child("hang"), name, call, attempt)
        {
            self.clock.sleep(self.options.call_timeout).await;
            let seconds = self.options.call_timeout.as_secs();
            return Err(CloudError::Timeout(format!(
                "no answer to the launch for NodeClaim {name} within {seconds} s; the instance may exist"
            )));
        }
        self.clock.sleep(self.options.launch_delay).await;
        Ok(answer)
    }

    async fn launch_once(
        &self,
        claim: &NodeClaim,
        corrected: Option<&[InstanceType]>,
    ) -> Result<NodeClaim, CloudError> {
        let outcome = self.launch(claim, corrected).await;
        // After these the NodeClaim is launched or given up: no further attempt is counted.
        if matches!(
            outcome,
            Ok(_) | Err(CloudError::InsufficientCapacity(_) | CloudError::NodeClassNotReady(_))
        ) {
            self.memory().attempts.remove(claim.uid());
        }
        outcome
    }

    fn count_attempt(&self, claim: &NodeClaim) -> (u64, u64) {
        let mut memory = self.memory();
        memory.calls += 1;
        let call = memory.calls;
        let attempt = memory.attempts.entry(claim.uid().to_owned()).or_insert(0);
        *attempt += 1;
        (call, *attempt)
    }

    /// The registration delay that the NodeClass asks for. Missing and not-ready classes are the errors of P §14.1.
    async fn node_class_delay(&self, claim: &NodeClaim) -> Result<Option<Duration>, CloudError> {
        let reference = &claim.spec.node_class_ref;
        let kind = &self.node_classes[0];
        if reference.group != kind.group || reference.kind != kind.kind {
            let (group, wrong) = (&reference.group, &reference.kind);
            return Err(CloudError::Create {
                reason: "UnsupportedNodeClass".to_owned(),
                message: format!("spec.nodeClassRef names {wrong}.{group}; the kwok provider serves {kind}"),
            });
        }
        let classes: Api<KWOKNodeClass> = Api::all(self.client.clone());
        let class = classes
            .get_opt(&reference.name)
            .await
            .map_err(|error| request_error("get KWOKNodeClass", &error))?;
        let Some(class) = class else {
            let name = &reference.name;
            return Err(launch::insufficient(format!(
                "resolving node class, KWOKNodeClass {name} does not exist"
            )));
        };
        let conditions = class.status.iter().flat_map(|status| &status.conditions);
        if let Some(ready) = conditions
            .into_iter()
            .find(|it| it.type_ == "Ready" && it.status == "False")
        {
            let (name, message) = (class.name(), &ready.message);
            return Err(CloudError::NodeClassNotReady(format!(
                "KWOKNodeClass {name} is not ready: {message}"
            )));
        }
        Ok(class
            .spec
            .node_registration_delay
            .as_ref()
            .and_then(spokeshave_api::GoDuration::to_std))
    }

    /// The cheapest candidate that has capacity. Offerings without are remembered as unavailable.
    fn with_capacity<'a>(
        &self,
        claim: &NodeClaim,
        candidates: &[Choice<'a>],
    ) -> Result<Choice<'a>, CloudError> {
        let until = self
            .clock
            .now()
            .saturating_add(self.options.unavailable_for)
            .unwrap_or(Timestamp::MAX);
        for choice in candidates {
            let key = choice.key();
            let short = |pattern: &crate::OfferingPattern| pattern.matches(&key.0, &key.1, &key.2);
            if !self.options.insufficient_capacity.iter().any(short) {
                return Ok(*choice);
            }
            self.memory().unavailable.insert(key, until);
        }
        let (count, name) = (candidates.len(), claim.name());
        Err(launch::insufficient(format!(
            "all {count} offerings that NodeClaim {name} allows are out of capacity"
        )))
    }

    /// D-283: what was just taken back is not sold again at once.
    pub(crate) fn withhold(&self, instance: &KWOKInstance) {
        let until = self
            .clock
            .now()
            .saturating_add(self.options.unavailable_for)
            .unwrap_or(Timestamp::MAX);
        let spec = &instance.spec;
        let key = (
            spec.instance_type.clone(),
            spec.zone.clone(),
            spec.capacity_type.clone(),
        );
        self.memory().unavailable.insert(key, until);
    }

    /// `None` when the Node is never to appear.
    fn registration_delay(
        &self,
        claim: &NodeClaim,
        choice: Choice<'_>,
        class_delay: Option<Duration>,
        call: u64,
        attempt: u64,
    ) -> Option<Duration> {
        let key = choice.key();
        let hits = |pattern: &crate::OfferingPattern| pattern.matches(&key.0, &key.1, &key.2);
        let chance = self.entropy.child("never-register");
        let options = &self.options;
        let never = options
            .never_register_failures
            .strike(&chance, claim.name(), call, attempt);
        if never || options.never_register.iter().any(hits) {
            return None;
        }
        let slow = options
            .slow_register
            .iter()
            .filter(|slow| hits(&slow.pattern))
            .map(|slow| slow.delay)
            .max();
        Some(class_delay.unwrap_or(options.registration_delay) + slow.unwrap_or_default())
    }

    /// Writes the record, or finds the one that another attempt has written.
    async fn write_record(&self, wanted: &KWOKInstance) -> Result<KWOKInstance, CloudError> {
        match self.instances().create(&PostParams::default(), wanted).await {
            Ok(instance) => Ok(instance),
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                self.find(wanted.name()).await?.ok_or_else(|| {
                    CloudError::Other(format!(
                        "KWOKInstance {} vanished during its launch",
                        wanted.name()
                    ))
                })
            }
            Err(error) => Err(request_error("create KWOKInstance", &error)),
        }
    }

    pub(crate) async fn find(&self, name: &str) -> Result<Option<KWOKInstance>, CloudError> {
        self.instances()
            .get_opt(name)
            .await
            .map_err(|error| request_error("get KWOKInstance", &error))
    }

    /// The record of an instance, made now for one of Karpenter's own kwok provider.
    async fn known(&self, name: &str) -> Result<Option<KWOKInstance>, CloudError> {
        match self.find(name).await? {
            Some(instance) => Ok(Some(instance)),
            None => self.adopt_one(name).await,
        }
    }

    /// All records, in order of name, which is the order of provider IDs.
    pub(crate) async fn all(&self) -> Result<Vec<KWOKInstance>, CloudError> {
        self.listed(ListParams::default()).await
    }

    async fn listed(&self, parameters: ListParams) -> Result<Vec<KWOKInstance>, CloudError> {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &record::record_kind());
        let mut parameters = parameters.limit(PAGE);
        let mut instances = Vec::new();
        loop {
            let page = api
                .list(&parameters)
                .await
                .map_err(|error| request_error("list KWOKInstances", &error))?;
            instances.extend(page.items.into_iter().filter_map(record::readable));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => parameters = parameters.continue_token(&token),
                None => break,
            }
        }
        instances.sort_by(|a, b| a.name().cmp(b.name()));
        Ok(instances)
    }

    /// The catalog as it is now: offerings found without capacity are unavailable, reservations are counted down.
    async fn sold(&self) -> Result<Arc<[InstanceType]>, CloudError> {
        let catalog = self.options.catalog.instance_types();
        let now = self.clock.now();
        let unavailable: BTreeSet<OfferingKey> = {
            let mut memory = self.memory();
            memory.unavailable.retain(|_, until| *until > now);
            memory.unavailable.keys().cloned().collect()
        };
        let reserved = if self.sells_reservations {
            self.used_reservations().await?
        } else {
            BTreeMap::new()
        };
        let scarce = Scarce {
            unavailable,
            reserved,
        };
        if scarce == Scarce::default() && !self.sells_reservations {
            return Ok(catalog.clone());
        }
        if let Some((known, types)) = &self.memory().sold
            && *known == scarce
        {
            return Ok(types.clone());
        }
        let mut types = catalog.to_vec();
        for instance_type in &mut types {
            let name = instance_type.name.clone();
            for offering in &mut instance_type.offerings {
                let zone = offering.zone().unwrap_or_default().to_owned();
                let capacity_type = offering
                    .capacity_type()
                    .map(|it| it.to_string())
                    .unwrap_or_default();
                offering.available &= !scarce.unavailable.contains(&(name.clone(), zone, capacity_type));
                if let Some(id) = offering.reservation_id() {
                    let left = offering.reservation_capacity - scarce.reserved.get(id).copied().unwrap_or(0);
                    offering.reservation_capacity = left.max(0);
                    offering.available &= left > 0;
                }
            }
        }
        let types: Arc<[InstanceType]> = types.into();
        self.memory().sold = Some((scarce, types.clone()));
        Ok(types)
    }

    async fn used_reservations(&self) -> Result<BTreeMap<String, i64>, CloudError> {
        let mut used = BTreeMap::new();
        // Asked for with every list of types: only for those that count.
        let in_reservations = ListParams::default().labels(keys::RESERVATION_ID);
        for instance in self.listed(in_reservations).await? {
            if let Some(id) = instance.spec.labels.get(keys::RESERVATION_ID) {
                *used.entry(id.clone()).or_insert(0) += 1;
            }
        }
        Ok(used)
    }

    async fn terminate(&self, claim: &NodeClaim) -> Result<(), CloudError> {
        let name = match claim.provider_id() {
            None => record::instance_name(claim),
            Some(id) => match record::instance_of(id) {
                Some(name) => name.to_owned(),
                None => {
                    return Err(CloudError::NodeClaimNotFound(format!(
                        "{id} is not an instance of the kwok cloud"
                    )));
                }
            },
        };
        let Some(instance) = self.known(&name).await? else {
            return Err(gone(&name));
        };
        self.begin_termination(&instance).await?;
        if self.options.termination_delay.is_zero() {
            self.end(&instance).await?;
            return Err(gone(&name));
        }
        Ok(())
    }

    /// Notes in the record that its instance ends. The API server compares no UID in a patch of its status: only the version guards one that has its name by now.
    async fn begin_termination(&self, known: &KWOKInstance) -> Result<(), CloudError> {
        let (mut instance, mut looks) = (known.clone(), 1);
        while record::termination_started(&instance).is_none() {
            let patch = json!({
                "metadata": {"resourceVersion": instance.metadata.resource_version},
                "status": {"phase": record::TERMINATING, "terminationStarted": MicroTime(self.clock.now())},
            });
            let patched = self
                .instances()
                .patch_status(known.name(), &PatchParams::default(), &Patch::Merge(&patch))
                .await;
            match patched {
                Ok(_) => return Ok(()),
                Err(kube::Error::Api(status)) if status.is_not_found() => return Err(gone(known.name())),
                Err(kube::Error::Api(status)) if is_conflict(&status) && looks < LOOKS => looks += 1,
                Err(error) => return Err(request_error("patch status of KWOKInstance", &error)),
            }
            let found = self.find(known.name()).await?;
            instance = found
                .filter(|found| found.uid() == known.uid())
                .ok_or_else(|| gone(known.name()))?;
        }
        Ok(())
    }

    /// Removes the record: the instance is gone.
    pub(crate) async fn end(&self, instance: &KWOKInstance) -> Result<(), CloudError> {
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: instance.metadata.uid.clone(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match self.instances().delete(instance.name(), &parameters).await {
            Ok(_) => Ok(()),
            // 409: another record has this name now; that one is not ours to end.
            Err(kube::Error::Api(status)) if status.is_not_found() || status.code == 409 => Ok(()),
            Err(error) => Err(request_error("delete KWOKInstance", &error)),
        }
    }
}

/// The answer of a launch, unless the record belongs to another NodeClaim.
fn own(claim: &NodeClaim, instance: &KWOKInstance) -> Result<NodeClaim, CloudError> {
    if instance.spec.node_claim_uid != claim.uid() {
        return Err(CloudError::Create {
            reason: "InstanceNameTaken".to_owned(),
            message: format!(
                "KWOKInstance {} belongs to a NodeClaim with UID {}; delete the NodeClaim {} to get another name",
                instance.name(),
                instance.spec.node_claim_uid,
                claim.name()
            ),
        });
    }
    let seen = record::as_node_claim(instance.clone());
    let mut answer = claim.clone();
    answer.metadata.labels = seen.metadata.labels;
    let annotations = answer.metadata.annotations.get_or_insert_default();
    annotations.extend(seen.metadata.annotations.unwrap_or_default());
    answer.status = seen.status;
    Ok(answer)
}

impl CloudProvider for KwokProvider {
    fn name(&self) -> &str {
        "kwok"
    }

    fn supported_node_classes(&self) -> &[NodeClassKind] {
        &self.node_classes
    }

    fn create<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, NodeClaim> {
        self.launch_once(claim, None).boxed()
    }

    fn create_from<'a>(
        &'a self,
        claim: &'a NodeClaim,
        types: &'a [InstanceType],
    ) -> CloudFuture<'a, NodeClaim> {
        self.launch_once(claim, Some(types)).boxed()
    }

    fn delete<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, ()> {
        self.terminate(claim).boxed()
    }

    fn get<'a>(&'a self, provider_id: &'a str) -> CloudFuture<'a, NodeClaim> {
        async move {
            let Some(name) = record::instance_of(provider_id) else {
                return Err(CloudError::NodeClaimNotFound(format!(
                    "{provider_id} is not an instance of the kwok cloud"
                )));
            };
            let instance = self.known(name).await?.ok_or_else(|| gone(name))?;
            Ok(record::as_node_claim(instance))
        }
        .boxed()
    }

    fn list(&self) -> CloudFuture<'_, Vec<NodeClaim>> {
        async move {
            let instances = self.with_adopted(self.all().await?).await?;
            Ok(instances.into_iter().map(record::as_node_claim).collect())
        }
        .boxed()
    }

    fn instance_types<'a>(&'a self, _pool: &'a NodePool) -> CloudFuture<'a, Arc<[InstanceType]>> {
        self.sold().boxed()
    }

    fn is_drifted<'a>(
        &'a self,
        _claim: &'a NodeClaim,
        _class: Option<&'a DynamicObject>,
    ) -> CloudFuture<'a, Option<String>> {
        async { Ok(None) }.boxed()
    }

    fn repair_policies(&self) -> &[RepairPolicy] {
        &self.repair_policies
    }

    fn watch_failures(&self) -> Option<&WatchFailures> {
        Some(&self.watch_failures)
    }

    fn interruptions(&self) -> Option<Interruptions<'_>> {
        Some(self.messages())
    }

    fn acknowledge<'a>(&'a self, message: &'a Interruption) -> CloudFuture<'a, ()> {
        self.take_message(message).boxed()
    }
}
