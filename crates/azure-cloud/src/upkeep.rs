//! What the leader does besides answering core: the market, machines that ARM is still making, what is left over, classes.
//!
//! Owns the periods. Each part goes on when another fails.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use spokeshave_api::AKSNodeClass;
use spokeshave_api::aks_node_class::NodeImage;
use spokeshave_model::interruption::InterruptionKind;
use spokeshave_ports::{CloudError, Interruption};
use spokeshave_provider_azure::errors::{ArmError, Attempt, launch_failure};
use spokeshave_provider_azure::images;
use spokeshave_provider_azure::instance_types::ProvisionMode;
use spokeshave_provider_azure::status::{self, ImageProblem, LookUps, SubnetProblem};
use spokeshave_provider_azure::tags;

use crate::client::Progress;
use crate::provider::{AzureProvider, Inner, Pending};

/// Sizes and prices are asked for this often (Z4, Z5).
const MARKET_PERIOD: Duration = Duration::from_secs(12 * 3600);
/// Quotas are asked for this often (Z4).
const QUOTA_PERIOD: Duration = Duration::from_secs(10 * 60);
/// Pause after a question that failed.
const RETRY: Duration = Duration::from_secs(10);
/// Operations are looked at this often, those that are due.
const OPERATIONS_PERIOD: Duration = Duration::from_secs(1);
/// What is left over is looked for this often (Z7).
const SWEEP_PERIOD: Duration = Duration::from_secs(5 * 60);
/// A network interface without machine is left over when it is older.
const INTERFACE_AGE: SignedDuration = SignedDuration::from_mins(5);
/// Azure keeps a network interface so long for a machine that was refused.
const INTERFACE_HELD: SignedDuration = SignedDuration::from_secs(180);

impl Inner {
    /// What only reads. Works for as long as it is polled.
    pub(crate) async fn follow_market(&self) {
        futures::join!(
            self.follow_skus(),
            self.follow_prices(),
            self.follow_quota(),
            self.follow_objects()
        );
    }

    /// All of it. Works for as long as it is polled.
    pub(crate) async fn lead(&self) {
        futures::join!(
            self.follow_market(),
            self.follow_operations(),
            self.sweep(),
            self.reconcile_classes(),
            self.hear_nodes(),
        );
    }

    async fn pause(&self, what: &str, answer: Result<(), ArmError>, period: Duration) {
        match answer {
            Ok(()) => self.clock().sleep(period).await,
            Err(error) => {
                tracing::warn!(%error, "asking for {what}");
                self.clock().sleep(RETRY).await;
            }
        }
    }

    async fn follow_skus(&self) {
        loop {
            let answer = self.market.discover_skus(self.calls()).await;
            self.pause("sizes", answer, MARKET_PERIOD).await;
        }
    }

    async fn follow_prices(&self) {
        loop {
            let answer = self
                .market
                .discover_prices(self.calls(), self.clock().now())
                .await;
            self.pause("prices", answer, MARKET_PERIOD).await;
        }
    }

    async fn follow_quota(&self) {
        loop {
            let answer = self.market.discover_quota(self.calls(), self.clock().now()).await;
            self.pause("quotas", answer, QUOTA_PERIOD).await;
        }
    }

    async fn follow_operations(&self) {
        loop {
            for pending in self.pending() {
                if pending.operation.next <= self.clock().now() {
                    self.look_at(&pending).await;
                }
            }
            self.clock().sleep(OPERATIONS_PERIOD).await;
        }
    }

    async fn look_at(&self, pending: &Pending) {
        match self.client.progress(&self.options, &pending.operation).await {
            Ok(Progress::Running(next)) => self.set_pending(&pending.machine, Some(next)),
            Ok(Progress::Done) => self.set_pending(&pending.machine, None),
            Ok(Progress::Failed(error)) => {
                self.set_pending(&pending.machine, None);
                self.failed(pending, &error).await;
            }
            // ARM forgets operations after a day; the machine itself says what became of it (`sweep`).
            Err(error) if error.is_not_found() => self.set_pending(&pending.machine, None),
            Err(error) => tracing::debug!(machine = pending.machine, %error, "looking at an operation"),
        }
    }

    /// A machine that was accepted could not be made: it ends, and its NodeClaim with it (Z-033).
    async fn failed(&self, pending: &Pending, error: &ArmError) {
        // AKS says in the machine what Compute has said, and in the operation that something has gone wrong.
        let said = match self.aks_name(&pending.machine) {
            Some((pool, name)) => self.calls().aks_machine(pool, name).await.ok().flatten(),
            None => None,
        };
        let said = said.and_then(|machine| machine.aks?.error);
        let error = said.as_ref().unwrap_or(error);
        let cpus = pending.instance_type.capacity.get("cpu") / 1000;
        let attempt = Attempt {
            instance_type: &pending.instance_type,
            family: &pending.family,
            cpus,
            zone: &pending.zone,
            capacity_type: pending.capacity_type,
        };
        if let Some(failure) = launch_failure(error, &attempt) {
            self.market.mark(&failure.marks, self.clock().now());
        }
        tracing::warn!(machine = pending.machine, %error, "a machine could not be made");
        self.give_up(&pending.machine).await;
    }

    async fn give_up(&self, machine: &str) {
        self.clean_named(machine).await;
        let provider_id = self.options.place.provider_id(machine);
        self.messages.tell(Interruption {
            id: format!("failed/{machine}"),
            provider_id,
            kind: Ok(InterruptionKind::InstanceTerminated),
            sent_at: Some(self.clock().now()),
            ends_at: None,
        });
    }

    async fn sweep(&self) {
        let mut held = BTreeMap::new();
        loop {
            self.clock().sleep(SWEEP_PERIOD).await;
            if let Err(error) = self.sweep_once(&mut held).await {
                tracing::warn!(%error, "looking for what is left over");
            }
        }
    }

    /// Ends machines that have failed while nobody looked, and removes network interfaces without machine (Z-051).
    async fn sweep_once(&self, held: &mut BTreeMap<String, Timestamp>) -> Result<(), CloudError> {
        let machines = self.machines().await?;
        let followed: Vec<String> = self.pending().into_iter().map(|it| it.machine).collect();
        for machine in &machines {
            let nobody_looks = !followed.contains(&machine.name);
            if machine.is_hollow() {
                self.clean(machine).await;
            } else if machine.has_failed() && nobody_looks {
                self.give_up(&machine.name).await;
            }
        }
        let interfaces = self.calls().interfaces().await;
        let interfaces =
            interfaces.map_err(|error| CloudError::Other(format!("listing network interfaces: {error}")))?;
        let now = self.clock().now();
        held.retain(|_, until| now < *until);
        for interface in interfaces {
            let tag = |key: &str| interface.tags.as_ref()?.get(key);
            let made: Option<Timestamp> = tag(tags::CREATED_AT).and_then(|text| text.parse().ok());
            let old = made.is_some_and(|made| now.duration_since(made) >= INTERFACE_AGE);
            let ours = tag(tags::CLUSTER).is_some_and(|cluster| *cluster == self.options.cluster_name);
            let free = interface.properties.virtual_machine.is_none();
            if !(ours && old && free) || held.contains_key(&interface.name) {
                continue;
            }
            // The list may be late: only ARM knows that there is no machine.
            let slot = self.slot(&interface.name);
            let _held = slot.lock().await;
            if self.find(&interface.name).await?.is_some() {
                continue;
            }
            match self.calls().delete_interface(&interface.name).await {
                Ok(()) => tracing::info!(
                    interface = interface.name,
                    "removed a network interface without machine"
                ),
                Err(error) if error.is_interface_reserved() => {
                    let until = now.saturating_add(INTERFACE_HELD).unwrap_or(Timestamp::MAX);
                    held.insert(interface.name, until);
                }
                Err(error) => {
                    tracing::warn!(interface = interface.name, %error, "removing a network interface")
                }
            }
        }
        Ok(())
    }
}

impl AzureProvider {
    /// Looks up what a class's status says, for an API server of this version: the class with the status that it is to have, and when to ask again.
    /// `maintenance` says whether images may move that work.
    pub async fn reconcile_class(
        &self,
        class: &AKSNodeClass,
        server_version: Option<&str>,
        maintenance: bool,
    ) -> (AKSNodeClass, SignedDuration) {
        self.0.reconcile(class, server_version, maintenance).await
    }
}

impl Inner {
    pub(crate) async fn reconcile(
        &self,
        class: &AKSNodeClass,
        server_version: Option<&str>,
        maintenance: bool,
    ) -> (AKSNodeClass, SignedDuration) {
        let version = server_version
            .map(|server| status::next_kubernetes_version(class, server))
            .ok_or_else(|| "the API server has not said its version".to_owned());
        let images = match &version {
            Ok(version) => self.images(class, version).await,
            Err(problem) => Err(ImageProblem::Call(problem.clone())),
        };
        let found = LookUps {
            images,
            subnet: self.subnet(class).await,
            kubernetes_version: version,
            maintenance,
            mode: self.options.settings.mode,
        };
        status::reconcile(class, &found, self.clock().now())
    }

    async fn images(&self, class: &AKSNodeClass, version: &str) -> Result<Vec<NodeImage>, ImageProblem> {
        if self.options.settings.mode == ProvisionMode::AksMachine {
            let definitions = images::node_image_definitions(class, version)?;
            let versions = self.calls().node_image_versions().await;
            let versions = versions.map_err(|error| ImageProblem::Call(error.to_string()))?;
            return Ok(images::node_images(&definitions, &versions)?);
        }
        if let Some(id) = class
            .annotation(images::IMAGE_ANNOTATION)
            .filter(|id| !id.is_empty())
        {
            return Ok(vec![NodeImage {
                id: id.to_owned(),
                requirements: Vec::new(),
            }]);
        }
        let mut found = Vec::new();
        for definition in images::definitions(class, version)? {
            let versions = self.calls().image_versions(&definition).await;
            let versions = versions.map_err(|error| ImageProblem::Call(error.to_string()))?;
            found.push((definition, versions));
        }
        Ok(images::images(&found)?)
    }

    async fn subnet(&self, class: &AKSNodeClass) -> Result<(), SubnetProblem> {
        let id = status::subnet(class, &self.options.vnet_subnet_id)?;
        match self.calls().subnet_exists(id).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(SubnetProblem::NotFound(id.to_owned())),
            Err(error) => Err(SubnetProblem::Unknown(error.to_string())),
        }
    }
}
