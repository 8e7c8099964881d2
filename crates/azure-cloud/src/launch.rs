//! The launch of a machine for a NodeClaim (Z6.2, Z6.3): adoption of one that a former launch has made, choice, network interface, machine.
//!
//! Owns the order of the steps. Each of them is decided in `provider-azure`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use spokeshave_api::aks_node_class::NodeImage;
use spokeshave_api::{AKSNodeClass, NodeClaim, Taint, labels as api};
use spokeshave_model::{InstanceType, still_sold};
use spokeshave_ports::CloudError;
use spokeshave_provider_azure::aks_machines::{self, MachinePool};
use spokeshave_provider_azure::bootstrap::{self, Cluster, Node};
use spokeshave_provider_azure::choice::{self, Choice, ChoiceError};
use spokeshave_provider_azure::errors::{ArmError, Attempt, Failure, Verdict, launch_failure};
use spokeshave_provider_azure::images;
use spokeshave_provider_azure::requests::{self, Interface};
use spokeshave_provider_azure::skus::Sku;
use spokeshave_provider_azure::{names, status, tags};
use spokeshave_provider_common::claims::{self, single_valued};

use crate::client::{Operation, Progress};
use crate::described::Machine;
use crate::machines;
use crate::provider::{Inner, Pending, cloud_error};

/// Offerings that one launch tries, one after the other, before it is left to the next.
const ATTEMPTS: usize = 5;
/// A network interface is waited for so long.
const INTERFACE_LIMIT: Duration = Duration::from_secs(120);

fn create(reason: &str, error: &impl ToString) -> CloudError {
    CloudError::Create {
        reason: reason.to_owned(),
        message: error.to_string(),
    }
}

/// Nothing is left that a claim allows, because of what was refused last: whoever reads it can do something about that.
fn sold_out(nothing: &ChoiceError, last: Option<&CloudError>) -> CloudError {
    let why = match last {
        Some(CloudError::Create { reason, message }) => format!(": {reason}: {message}"),
        Some(error) => format!(": {error}"),
        None => String::new(),
    };
    CloudError::InsufficientCapacity(format!("{nothing}{why}"))
}

/// What a launch is made with.
pub(crate) struct Launch<'a> {
    pub(crate) claim: &'a NodeClaim,
    pub(crate) class: &'a AKSNodeClass,
    /// The virtual machine's, or the one at AKS.
    pub(crate) name: &'a str,
    /// Where AKS makes it; `None` where the provider does.
    pool: Option<&'a MachinePool>,
    subnet_id: &'a str,
    pub(crate) tags: BTreeMap<String, String>,
}

/// Labels of a node: those of its claim and of what was bought.
pub(crate) fn node_labels(claim: &NodeClaim, choice: &Choice<'_>) -> BTreeMap<String, String> {
    let mut node_labels = claim.metadata.labels.clone().unwrap_or_default();
    node_labels.extend(single_valued([
        &choice.instance_type.requirements,
        &choice.offering.requirements,
    ]));
    node_labels
}

/// Taints of a node that joins.
pub(crate) fn node_taints(claim: &NodeClaim) -> Vec<Taint> {
    let mut taints = claim.spec.taints.clone();
    taints.extend(claim.spec.startup_taints.iter().cloned());
    taints.push(api::unregistered_taint());
    taints
}

/// The network interface of a launch. All attempts share it: it cannot be made anew before ARM has deleted it.
#[derive(Default)]
struct Begun {
    /// It is to be taken back when the launch fails.
    is_taken_back: bool,
    /// Of the one that is there.
    is_accelerated: Option<bool>,
}

/// Why one offering was not launched.
enum Refused {
    /// Another may be tried.
    Next(CloudError),
    /// Another may be tried when what this one has made is gone: it has the only name that the claim's machine may have.
    Later(CloudError),
    /// No other is tried.
    Final(CloudError),
}

impl Inner {
    /// Launches a machine for a NodeClaim, or finds the one that it has. Types that are given are those of the class as core corrects them: they count in
    /// every attempt.
    pub(crate) async fn launch(
        &self,
        claim: &NodeClaim,
        given: Option<&[InstanceType]>,
    ) -> Result<NodeClaim, CloudError> {
        let class_name = &claim.spec.node_class_ref.name;
        let class = self.find_class(class_name);
        let class = class.map_err(|absent| absent.launch_error(AKSNodeClass::KIND, class_name))?;
        let pool = self.launch_pool();
        let name = match pool {
            Some(_) => aks_machines::machine_name(claim.name()),
            None => names::machine(claim.name()),
        };
        let slot = self.slot(&name);
        let _held = slot.lock().await;
        let existing = match pool {
            Some(pool) => self.find_aks(pool, &name).await?,
            None => self.find(&name).await?,
        };
        if let Some(machine) = existing {
            return self.adopt(claim, &class, given, &machine).await;
        }
        if !status::is_ready(&class) {
            return Err(CloudError::NodeClassNotReady(format!(
                "AKSNodeClass {class_name} is not ready"
            )));
        }
        let subnet_id = status::subnet(&class, &self.options.vnet_subnet_id)
            .map_err(|problem| CloudError::NodeClassNotReady(problem.to_string()))?;
        let now = self.clock().now().to_string();
        let status = class.status.as_ref();
        let version = status.and_then(|status| status.kubernetes_version.as_deref());
        let mut own = vec![
            (tags::CLUSTER, self.options.cluster_name.as_str()),
            (tags::NODE_POOL, claim.node_pool().unwrap_or_default()),
            (tags::NODE_CLAIM, claim.name()),
            (tags::NODE_CLAIM_UID, claim.uid()),
            (tags::NODE_CLASS, class.name()),
            (tags::CREATED_AT, &now),
        ];
        own.extend(version.map(|version| (tags::KUBERNETES_VERSION, version)));
        if pool.is_some() {
            // The image is chosen with the size; its tag counts here already.
            own.extend([(tags::AKS_MACHINE, claim.name()), (tags::IMAGE, "")]);
        }
        let tags = tags::launch(&class, &self.options.additional_tags, &own)
            .map_err(|error| create("InvalidTags", &error))?;
        let launch = Launch {
            claim,
            class: &class,
            name: &name,
            pool,
            subnet_id,
            tags,
        };
        let mut begun = Begun::default();
        let launched = self.try_offerings(&launch, given, &mut begun).await;
        if launched.is_err() && begun.is_taken_back {
            self.clean_vm(&name).await;
        }
        launched
    }

    /// Tries offerings until one is launched.
    async fn try_offerings(
        &self,
        launch: &Launch<'_>,
        given: Option<&[InstanceType]>,
        begun: &mut Begun,
    ) -> Result<NodeClaim, CloudError> {
        let (claim, class) = (launch.claim, launch.class);
        let since = self.clock().now();
        let mut last: Option<CloudError> = None;
        for _ in 0..ATTEMPTS {
            let sold;
            let types = match given {
                Some(given) if last.is_none() => given,
                _ => {
                    sold = self.sold_now(class, given)?;
                    &sold[..]
                }
            };
            let choice = choice::choose(types, claim).map_err(|error| match error {
                ChoiceError::NothingAvailable(_) => sold_out(&error, last.as_ref()),
                ChoiceError::Claim(_) => create("InvalidNodeClaim", &error),
            })?;
            match self.attempt(launch, &choice, begun).await {
                Ok(launched) => return Ok(launched),
                Err(Refused::Final(error)) => return Err(error),
                Err(Refused::Next(error)) => last = Some(error),
                Err(Refused::Later(error)) => {
                    let nothing = choice::choose(&self.sold_now(class, given)?, claim).err();
                    if let Some(nothing @ ChoiceError::NothingAvailable(_)) = nothing {
                        return Err(sold_out(&nothing, Some(&error)));
                    }
                    if !self.is_gone_soon(launch.pool, launch.name, since).await? {
                        return Err(error);
                    }
                    last = Some(error);
                }
            }
        }
        Err(last.unwrap_or_else(|| create("LaunchFailed", &"nothing was tried")))
    }

    /// What may be bought now: what was given does not know what has run out since.
    fn sold_now(
        &self,
        class: &AKSNodeClass,
        given: Option<&[InstanceType]>,
    ) -> Result<Arc<[InstanceType]>, CloudError> {
        let market = self.types_of(class)?;
        Ok(match given {
            Some(given) => still_sold(given, &market),
            None => market,
        })
    }

    /// A machine of the claim's name exists: what was launched is not launched again (Z-031).
    async fn adopt(
        &self,
        claim: &NodeClaim,
        class: &AKSNodeClass,
        given: Option<&[InstanceType]>,
        machine: &Machine,
    ) -> Result<NodeClaim, CloudError> {
        let owner = machine.tag(tags::NODE_CLAIM_UID).unwrap_or_default();
        let name = machine.aks.as_ref().map_or(&machine.name, |aks| &aks.name);
        if machine.tag(tags::CLUSTER) != Some(self.options.cluster_name.as_str()) || owner != claim.uid() {
            let message = format!("a machine {name} exists that is not this NodeClaim's");
            return Err(create("MachineNameTaken", &message));
        }
        if machine.is_deleting() {
            return Err(create("MachineDeleting", &format!("machine {name} is ending")));
        }
        if machine.has_failed() || machine.is_hollow() {
            // Its operation must not end the machine of the same name that the next launch makes.
            self.forget_pending(&machine.name);
            let failure = self.left_out_by(machine, class);
            self.clean(machine).await;
            let why = machine.aks.as_ref().and_then(|aks| aks.error.as_ref());
            let why = why.map(|error| format!(": {error}")).unwrap_or_default();
            let message = format!("machine {name} has failed and ends{why}");
            return Err(match failure.map(|failure| failure.verdict) {
                Some(Verdict::InsufficientCapacity(_)) => CloudError::InsufficientCapacity(message),
                Some(Verdict::Failed { reason, .. }) => create(reason, &message),
                None => create("LaunchFailed", &message),
            });
        }
        // Without the name of its virtual machine nobody could find its node.
        if machine.name.is_empty() {
            return Err(CloudError::Timeout(format!(
                "AKS does not say yet which virtual machine machine {name} is"
            )));
        }
        // What its size holds is written down now or never: until sizes are known, the launch waits for them as any other does.
        let size = &machine.properties.hardware_profile.vm_size;
        let of_size = |types: &[InstanceType]| types.iter().find(|it| it.name == *size).cloned();
        let instance_type = match given.and_then(of_size) {
            Some(known) => Some(known),
            None => of_size(&self.types_of(class)?[..]),
        };
        // Lists may not know of it yet, no more than of one that has just been launched.
        self.remember(&machine.name);
        let got = machines::as_node_claim(machine, instance_type.as_ref(), &self.options, self.clock().now());
        Ok(machines::launched(claim, class, got))
    }

    async fn attempt(
        &self,
        launch: &Launch<'_>,
        choice: &Choice<'_>,
        begun: &mut Begun,
    ) -> Result<NodeClaim, Refused> {
        let fatal = |reason: &str, message: String| Refused::Final(create(reason, &message));
        let size = &choice.instance_type.name;
        let sku = self
            .market
            .sku(size)
            .ok_or_else(|| fatal("SizeUnknown", format!("size {size} is not known any more")))?;
        let class_images = launch
            .class
            .status
            .as_ref()
            .map_or(&[][..], |status| &status.images);
        // After a change of the mode, those of the other one stand there until the class has been looked at.
        let is_resource = |image: &NodeImage| image.id.starts_with('/');
        if class_images
            .iter()
            .any(|image| is_resource(image) == launch.pool.is_some())
        {
            let name = launch.class.name();
            return Err(Refused::Final(CloudError::NodeClassNotReady(format!(
                "status.images of AKSNodeClass {name} are those of another PROVISION_MODE; they are looked up"
            ))));
        }
        let image = images::image_for(class_images, choice.instance_type)
            .ok_or_else(|| fatal("ImageNotFound", format!("no image of the class suits {size}")))?;
        let answer = match launch.pool {
            Some(pool) => self.make_aks(pool, launch, choice, &sku, &image.id).await,
            None => {
                let custom_data = self.custom_data(launch, choice)?;
                let made = self.make(launch, choice, &sku, &image.id, &custom_data, begun);
                let made = made.await;
                made.map(|operation| (Machine::accepted(launch.name, &image.id), operation))
            }
        };
        match answer {
            Ok((machine, operation)) => Ok(self.accepted(launch, choice, &sku, &machine, operation)),
            Err(error) => {
                // Without a reply nobody knows what was made: the next launch finds it.
                if error.status == 0 && error.code.is_empty() {
                    begun.is_taken_back = false;
                    return Err(Refused::Final(CloudError::Timeout(error.to_string())));
                }
                // To take something back would be more calls where there are too many, or another change where one is under way: the next launch goes on
                // with what is there.
                if error.is_throttled() || error.is_busy() {
                    begun.is_taken_back = false;
                    return Err(Refused::Final(cloud_error("launching a machine", &error)));
                }
                let is_ending = match launch.pool {
                    Some(pool) => self.clean_aks(pool, launch.name).await,
                    None => false,
                };
                Err(match self.refused(launch, choice, &sku, &error) {
                    Refused::Next(error) if is_ending => Refused::Later(error),
                    refused => refused,
                })
            }
        }
    }

    fn custom_data(&self, launch: &Launch<'_>, choice: &Choice<'_>) -> Result<String, Refused> {
        let claim = launch.claim;
        let mut node_labels = node_labels(claim, choice);
        // Whoever joins with a token may not give itself labels of these domains; the operator does (P §9.3).
        node_labels.retain(|key, _| {
            let domain = api::domain(key);
            !(domain.ends_with("kubernetes.io") || domain.ends_with("k8s.io"))
        });
        let taints = node_taints(claim);
        let status = launch.class.status.as_ref();
        let version = status.and_then(|status| status.kubernetes_version.clone());
        let cluster = Cluster {
            kubernetes_version: version.unwrap_or_default(),
            ..self.options.cluster.clone()
        };
        let node = Node {
            name: launch.name,
            provider_id: &self.options.place.provider_id(launch.name),
            instance_type: choice.instance_type,
            labels: &node_labels,
            taints: &taints,
            kubelet: launch.class.spec.kubelet.as_ref(),
        };
        bootstrap::render(&self.options.bootstrap_template, &cluster, &node)
            .map_err(|error| Refused::Final(create("InvalidBootstrapTemplate", &error)))
    }

    /// Asks for the network interface, waits for it, and asks for the machine, which is not waited for.
    async fn make(
        &self,
        launch: &Launch<'_>,
        choice: &Choice<'_>,
        sku: &Sku,
        image_id: &str,
        custom_data: &str,
        begun: &mut Begun,
    ) -> Result<Option<Operation>, ArmError> {
        let calls = self.calls();
        let region = &self.options.settings.region;
        let is_accelerated = sku.is("AcceleratedNetworkingEnabled");
        let interface = Interface {
            location: region,
            tags: &launch.tags,
            subnet_id: launch.subnet_id,
            backend_pools: &[],
            security_group_id: None,
            is_accelerated,
            pod_addresses: 0,
        };
        if begun.is_accelerated != Some(is_accelerated) {
            begun.is_taken_back = true;
            if let Some(operation) = calls.put_interface(launch.name, &interface.body()).await? {
                self.wait(operation).await?;
            }
            begun.is_accelerated = Some(is_accelerated);
        }
        let machine = requests::Machine {
            name: launch.name,
            location: region,
            zone: names::arm_zone(choice.zone),
            capacity_type: choice.capacity_type,
            sku,
            class: launch.class,
            image_id,
            interface_id: &self.options.place.interface_id(launch.name),
            tags: &launch.tags,
            custom_data,
            access: &self.options.access,
            has_ultra_disks: choice::asks_for_ultra_disks(launch.claim, choice),
        };
        calls.put_machine(launch.name, &machine.body()).await
    }

    async fn wait(&self, mut operation: Operation) -> Result<(), ArmError> {
        let since = self.clock().now();
        loop {
            self.clock().sleep_until(operation.next).await;
            match self.client.progress(&self.options, &operation).await? {
                Progress::Done => return Ok(()),
                Progress::Failed(error) => return Err(error),
                Progress::Running(next) => operation = next,
            }
            if self.clock().since(since) > INTERFACE_LIMIT {
                return Err(ArmError::new(
                    "OperationStuck",
                    "the network interface was not made in two minutes",
                ));
            }
        }
    }

    /// ARM has taken the request: the answer is made of what was asked for.
    fn accepted(
        &self,
        launch: &Launch<'_>,
        choice: &Choice<'_>,
        sku: &Sku,
        machine: &Machine,
        operation: Option<Operation>,
    ) -> NodeClaim {
        if let Some(operation) = operation {
            self.follow(Pending {
                machine: machine.name.clone(),
                operation,
                since: self.clock().now(),
                unread: 0,
                instance_type: choice.instance_type.clone(),
                family: sku.family.clone(),
                zone: choice.zone.to_owned(),
                capacity_type: choice.capacity_type,
            });
        }
        let mut got = NodeClaim::new(launch.claim.name(), launch.claim.spec.clone());
        let mut node_labels =
            single_valued([&choice.instance_type.requirements, &choice.offering.requirements]);
        node_labels.insert(api::INSTANCE_TYPE.to_owned(), choice.instance_type.name.clone());
        got.metadata.labels = Some(node_labels);
        got.metadata.annotations = machines::annotations(machine);
        if let Ok(asked) = tags::of_user(launch.class, &self.options.additional_tags) {
            let annotations = got.metadata.annotations.get_or_insert_default();
            annotations.insert(tags::APPLIED_ANNOTATION.to_owned(), json!(asked).to_string());
        }
        let id = self.options.place.provider_id(&machine.name);
        let image_id = machine.image_id().to_owned();
        got.status = Some(claims::status(id, image_id, Some(choice.instance_type)));
        self.remember(&machine.name);
        machines::launched(launch.claim, launch.class, got)
    }

    fn refused(&self, launch: &Launch<'_>, choice: &Choice<'_>, sku: &Sku, error: &ArmError) -> Refused {
        let attempt = Attempt {
            instance_type: choice.instance_type,
            family: &sku.family,
            cpus: sku.cpus().unwrap_or(0),
            zone: choice.zone,
            capacity_type: choice.capacity_type,
        };
        let (name, size) = (launch.claim.name(), &choice.instance_type.name);
        let failure = launch_failure(error, &attempt);
        let mark = |failure: &Failure| self.market.mark(&failure.marks, self.clock().now());
        // Of many launches that meet the same shortage, the first says so.
        if failure.as_ref().is_some_and(mark) {
            let (zone, capacity_type) = (choice.zone, choice.capacity_type.as_str());
            tracing::warn!(NodeClaim = name, size, zone, capacity_type, %error, "Azure refuses a machine; what has run out is left out for a while");
        } else {
            tracing::debug!(NodeClaim = name, size, %error, "a launch was refused");
        }
        let Some(failure) = failure else {
            return Refused::Final(cloud_error("launching a machine", error));
        };
        match failure.verdict {
            Verdict::InsufficientCapacity(message) => {
                Refused::Final(CloudError::InsufficientCapacity(message))
            }
            // What leaves nothing out would be chosen again.
            Verdict::Failed { reason, message } if failure.marks.is_empty() => {
                Refused::Final(create(reason, &message))
            }
            Verdict::Failed { reason, message } => Refused::Next(create(reason, &message)),
        }
    }

    /// What the failure of a machine that nobody was waiting for says about capacity.
    pub(crate) fn left_out_by(&self, machine: &Machine, class: &AKSNodeClass) -> Option<Failure> {
        let error = machine.aks.as_ref()?.error.as_ref()?;
        let size = &machine.properties.hardware_profile.vm_size;
        let types = self.types_of(class).ok();
        let instance_type = types
            .iter()
            .flat_map(|types| types.iter())
            .find(|it| it.name == *size);
        let (instance_type, sku) = (instance_type?, self.market.sku(size)?);
        let attempt = Attempt {
            instance_type,
            family: &sku.family,
            cpus: sku.cpus().unwrap_or(0),
            zone: &machines::zone(machine, &self.options),
            capacity_type: machines::capacity_type(machine),
        };
        let failure = launch_failure(error, &attempt)?;
        self.market.mark(&failure.marks, self.clock().now());
        Some(failure)
    }

    /// Takes a machine that has failed back.
    pub(crate) async fn clean(&self, machine: &Machine) {
        match self.at_aks(machine) {
            Some((pool, name)) => drop(self.clean_aks(&pool, name).await),
            None => self.clean_vm(&machine.name).await,
        }
    }

    /// Takes back what a failed launch at AKS has made: whether there may be something that ends now.
    async fn clean_aks(&self, pool: &MachinePool, name: &str) -> bool {
        match self.calls().delete_aks_machine(pool, name).await {
            Ok(begun) => begun.is_some(),
            Err(error) => {
                tracing::warn!(machine = name, %error, "taking a failed machine back");
                true
            }
        }
    }

    /// Takes back what a failed launch has made.
    pub(crate) async fn clean_vm(&self, name: &str) {
        let calls = self.calls();
        if let Err(error) = calls.delete_machine(name).await {
            tracing::warn!(machine = name, %error, "taking a failed machine back");
        }
        // One that is still held is collected later.
        if let Err(error) = calls.delete_interface(name).await {
            tracing::debug!(interface = name, %error, "taking a network interface back");
        }
    }
}
