//! EC2NodeClasses (A2): what their selectors find, their status, and whether EC2 would allow launches from them.
//!
//! Owns when a class is looked at and in which order AWS is asked. What a status says is decided in `provider-aws`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::stream::{FuturesUnordered, StreamExt as _};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use spokeshave_api::{EC2NodeClass, NodeClaim, NodeClaimSpec};
use spokeshave_model::Requirements;
use spokeshave_ports::{Write, WriteTarget, Writes};
use spokeshave_provider_aws::class_hash::{HASH_ANNOTATION, STAMP, class_hash};
use spokeshave_provider_aws::errors::{ApiError, steady};
use spokeshave_provider_aws::launch::{self, Context};
use spokeshave_provider_aws::rehearsal::{self, Question, Verdict};
use spokeshave_provider_aws::requests::{LaunchTemplateRequest, RunInstancesRequest};
use spokeshave_provider_aws::selectors::{self, FoundImage};
use spokeshave_provider_aws::status::{
    self, FoundReservation, FoundSubnet, ImageProblem, LookUps, Validation,
};
use spokeshave_provider_aws::tags;
use spokeshave_provider_aws::user_data::LIMIT_BYTES;
use spokeshave_provider_common::status_patch::status_patch;

use crate::notices;
use crate::provider::Inner;
use crate::verdicts::Kept;

/// Keeps a class until nothing of it is left in AWS.
pub(crate) const FINALIZER: &str = "karpenter.k8s.aws/termination";
/// A class whose reconciliation failed is looked at again after this.
const RETRY: Duration = Duration::from_secs(10);
/// A class that waits for its NodeClaims to end is looked at again after this.
pub(crate) const WHILE_IN_USE: Duration = Duration::from_secs(5);
/// How often somebody looks whether a class is due.
const TICK: Duration = Duration::from_secs(1);

/// Why a class was not reconciled to the end.
pub(crate) type Failure = String;

pub(crate) fn failed(call: &str) -> impl Fn(&ApiError) -> Failure + '_ {
    move |error| error.told(call)
}

fn wait(duration: SignedDuration) -> Duration {
    Duration::try_from(duration).unwrap_or_default().max(TICK)
}

/// Whether a NodeClaim is launched from a class.
pub(crate) fn uses(claim: &NodeClaim, class: &EC2NodeClass) -> bool {
    let reference = &claim.spec.node_class_ref;
    reference.is_ec2() && reference.name == class.name()
}

impl Inner {
    /// Reconciles every class when it changes and when its time has come, each for itself.
    pub(crate) async fn reconcile_classes(&self, writes: &dyn Writes) {
        let mut due: BTreeMap<String, Timestamp> = BTreeMap::new();
        let mut seen: BTreeMap<String, (Option<i64>, bool, Option<String>)> = BTreeMap::new();
        let mut busy: BTreeSet<String> = BTreeSet::new();
        let mut running = FuturesUnordered::new();
        loop {
            let now = self.clock.now();
            let classes = self.classes.all().unwrap_or_default();
            let exists = |name: &str| classes.iter().any(|class| class.name() == name);
            due.retain(|name, _| exists(name));
            self.looked_up.forget(exists);
            self.rounds.forget(exists);
            self.verdicts.forget(exists);
            self.aws.meter.keep_classes(exists);
            for class in &classes {
                let name = class.name().to_owned();
                let metadata = &class.metadata;
                let state = (
                    metadata.generation,
                    metadata.deletion_timestamp.is_some(),
                    metadata.uid.clone(),
                );
                if seen.insert(name.clone(), state.clone()).as_ref() != Some(&state) {
                    due.insert(name.clone(), now);
                }
                let is_due = due.get(&name).is_none_or(|due| *due <= now);
                if is_due && self.market.is_known() && busy.insert(name.clone()) {
                    let reconciled = async move {
                        let again = self.reconcile_class(&name, writes).await;
                        (name, again)
                    };
                    running.push(reconciled.boxed());
                }
            }
            tokio::select! {
                biased;
                Some((name, again)) = running.next(), if !running.is_empty() => {
                    busy.remove(&name);
                    let again = again.unwrap_or_else(|error| {
                        tracing::error!(EC2NodeClass = name, error, "the class is looked at again");
                        self.tell_failure(&name, &error);
                        RETRY
                    });
                    let at = self.clock.now().saturating_add(SignedDuration::try_from(again).unwrap_or_default());
                    due.insert(name, at.unwrap_or(Timestamp::MAX));
                }
                () = self.classes.changed() => {}
                () = self.clock.sleep(TICK) => {}
            }
        }
    }

    /// Users read why a class does not get any further.
    pub(crate) fn tell_failure(&self, name: &str, error: &str) {
        let Some(class) = self.classes.get(name) else {
            return;
        };
        let text = steady(error);
        let notice = notices::of_class(&class, true, "ReconcileFailed", text);
        self.notices.tell(notice);
    }

    async fn reconcile_class(&self, name: &str, writes: &dyn Writes) -> Result<Duration, Failure> {
        let Some(class) = self.classes.get(name) else {
            return Ok(RETRY);
        };
        if class.metadata.deletion_timestamp.is_some() {
            return self.finalize(&class, writes).await;
        }
        let class = self.stamp(&class, writes).await?;
        let updated = self.update_status(&class, writes).await;
        // What the class says of itself waits for no NodeClaim.
        if let Err(error) = self.stamp_claims(&class, writes).await {
            tracing::warn!(
                EC2NodeClass = name,
                error,
                "a NodeClaim does not get the hash of its class; it is tried again"
            );
            self.tell_failure(name, &error);
        }
        updated
    }

    /// Looks up what the class selects, judges it and writes its status. Says when to look again.
    async fn update_status(&self, class: &EC2NodeClass, writes: &dyn Writes) -> Result<Duration, Failure> {
        let now = self.clock.now();
        let found = self.look_up(class, now).await;
        let reconciled = status::resolve(class, &found, now);
        let (outcome, again) = self.judge(&reconciled.class, &found, now).await;
        let concluded = match &outcome {
            Some(outcome) => status::conclude(&reconciled.class, outcome, now),
            None => reconciled.class,
        };
        let (before, after) = (class.status.as_ref(), concluded.status.as_ref());
        if let Some(patch) = status_patch(&class.metadata, before, after) {
            let target = WriteTarget::NodeClassStatus(self.kind().clone());
            self.write_class(class, target, patch, writes).await?;
        }
        if !reconciled.failures.is_empty() {
            return Err(reconciled.failures.join("; "));
        }
        Ok(wait(reconciled.again_after).min(again))
    }

    /// Finalizer and hash.
    async fn stamp(
        &self,
        class: &Arc<EC2NodeClass>,
        writes: &dyn Writes,
    ) -> Result<Arc<EC2NodeClass>, Failure> {
        let hash = class_hash(class, self.options.cluster_ca_bundle.as_deref());
        let Some(patch) = STAMP.class_patch(&class.metadata, FINALIZER, &hash) else {
            return Ok(class.clone());
        };
        let target = WriteTarget::NodeClass(self.kind().clone());
        self.write_class(class, target, patch, writes).await
    }

    /// NodeClaims that were stamped by another version of the hash get ours, and drift by nothing but what has drifted before.
    async fn stamp_claims(&self, class: &EC2NodeClass, writes: &dyn Writes) -> Result<(), Failure> {
        let Some(hash) = class.annotation(HASH_ANNOTATION) else {
            return Ok(());
        };
        let claims = self.claims.all().unwrap_or_default();
        let of_class = claims.iter().filter(|claim| uses(claim, class));
        let stamps = of_class.filter_map(|claim| {
            Some(Write {
                target: WriteTarget::NodeClaim,
                name: claim.name().to_owned(),
                patch: STAMP.claim_patch(claim, hash)?,
            })
        });
        let stamps = stamps.collect();
        let written = self.rounds.write(class.name(), stamps, &self.claims, writes);
        written.await.map_err(|error| error.to_string())
    }

    pub(crate) async fn write_class(
        &self,
        class: &EC2NodeClass,
        target: WriteTarget,
        patch: Value,
        writes: &dyn Writes,
    ) -> Result<Arc<EC2NodeClass>, Failure> {
        let write = Write {
            target,
            name: class.name().to_owned(),
            patch,
        };
        let written = self.classes.write(writes, write).await;
        written.map_err(|error| error.to_string())
    }

    async fn look_up(&self, class: &EC2NodeClass, now: Timestamp) -> LookUps {
        LookUps {
            amis: self.known_images(class, now).await,
            subnets: self.known_subnets(class, now).await,
            security_groups: self.find_security_groups(class).await,
            instance_profile: self.instance_profile(class).await,
            capacity_reservations: if self.options.reserved_capacity {
                Some(self.find_reservations(class).await)
            } else {
                None
            },
            placement_group: None,
        }
    }

    async fn known_images(
        &self,
        class: &EC2NodeClass,
        now: Timestamp,
    ) -> Result<Vec<spokeshave_api::ec2_node_class::Ami>, ImageProblem> {
        let (minor, interval) = (self.version.minor(), self.options.ami_refresh_interval);
        if let Some(known) = self.looked_up.images(class, minor, &self.clock, interval) {
            return Ok(known);
        }
        let found = self.find_images(class, minor, now).await?;
        self.looked_up.keep_images(class, minor, &found, now);
        Ok(found)
    }

    async fn known_subnets(&self, class: &EC2NodeClass, now: Timestamp) -> Result<Vec<FoundSubnet>, Failure> {
        let interval = self.options.subnet_refresh_interval;
        if let Some(known) = self.looked_up.subnets(class, &self.clock, interval) {
            return Ok(known);
        }
        let found = self.find_subnets(class).await?;
        self.looked_up.keep_subnets(class, &found, now);
        Ok(found)
    }

    async fn find_images(
        &self,
        class: &EC2NodeClass,
        minor: u32,
        now: Timestamp,
    ) -> Result<Vec<spokeshave_api::ec2_node_class::Ami>, ImageProblem> {
        let look_up = selectors::images(class, minor)?;
        let mut values = BTreeMap::new();
        for name in look_up.parameters() {
            match self.aws.ssm.parameter(name).await {
                Ok(value) => drop(values.insert(name.to_owned(), value)),
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(ImageProblem::Call(failed("ssm:GetParameter")(&error))),
            }
        }
        if look_up.has_no_image(&values) {
            return Err(ImageProblem::NoParameter(
                look_up.alias().unwrap_or_default().to_owned(),
            ));
        }
        let mut found = Vec::new();
        for request in look_up.requests(&values) {
            let images = self.aws.ec2.images(&request).await;
            let images = images.map_err(|error| ImageProblem::Call(failed("ec2:DescribeImages")(&error)))?;
            found.extend(
                images
                    .into_iter()
                    .filter(|image| image.state == "available")
                    .map(|image| FoundImage {
                        id: image.id,
                        name: image.name,
                        architecture: image.architecture,
                        created_at: image.created_at,
                        deprecated_at: image.deprecated_at,
                    }),
            );
        }
        let chosen = look_up.choose(&values, &found, now);
        if chosen.is_empty() && !found.is_empty() {
            let ids: BTreeSet<&str> = found.iter().map(|image| image.id.as_str()).take(5).collect();
            let ids = ids.into_iter().collect::<Vec<_>>().join(", ");
            return Err(ImageProblem::NoArchitecture(ids));
        }
        Ok(chosen)
    }

    async fn find_subnets(&self, class: &EC2NodeClass) -> Result<Vec<FoundSubnet>, Failure> {
        let mut found = Vec::new();
        for request in selectors::subnets(&class.spec.subnet_selector_terms) {
            let subnets = self.aws.ec2.subnets(&request).await;
            for subnet in subnets.map_err(|error| failed("ec2:DescribeSubnets")(&error))? {
                self.addresses().found(&subnet.id, subnet.free_addresses);
                self.aws.meter.zone(&subnet.zone, &subnet.zone_id);
                found.push(FoundSubnet {
                    id: subnet.id,
                    zone: subnet.zone,
                    zone_id: subnet.zone_id,
                    free_addresses: subnet.free_addresses,
                });
            }
        }
        Ok(found)
    }

    async fn find_security_groups(
        &self,
        class: &EC2NodeClass,
    ) -> Result<Vec<spokeshave_api::ec2_node_class::SecurityGroup>, Failure> {
        let mut found = Vec::new();
        for request in selectors::security_groups(&class.spec.security_group_selector_terms) {
            let groups = self.aws.ec2.security_groups(&request).await;
            let groups = groups.map_err(|error| failed("ec2:DescribeSecurityGroups")(&error))?;
            found.extend(
                groups
                    .into_iter()
                    .map(|group| spokeshave_api::ec2_node_class::SecurityGroup {
                        id: group.id,
                        name: group.name,
                    }),
            );
        }
        Ok(found)
    }

    async fn find_reservations(&self, class: &EC2NodeClass) -> Result<Vec<FoundReservation>, Failure> {
        let mut found = Vec::new();
        for request in selectors::capacity_reservations(&class.spec.capacity_reservation_selector_terms) {
            let reservations = match self.aws.ec2.capacity_reservations(&request).await {
                Ok(reservations) => reservations,
                // It is long gone, or no longer shared: the class goes on with the others.
                Err(error) if error.is_not_found() => continue,
                Err(error) => return Err(failed("ec2:DescribeCapacityReservations")(&error)),
            };
            let active = reservations.into_iter().filter(|one| one.state == "active");
            let active: Vec<_> = active.collect();
            let free = active.iter().map(|one| (one.id.clone(), one.available));
            // Before the next call: what is launched meanwhile counts on top.
            self.market.add_reservations(free.collect());
            for reservation in active {
                found.push(FoundReservation {
                    id: reservation.id,
                    zone: reservation.zone,
                    instance_type: reservation.instance_type,
                    instance_match_criteria: reservation.instance_match_criteria,
                    owner_id: reservation.owner_id,
                    reservation_type: reservation.reservation_type,
                    interruptible: reservation.interruptible,
                    ends_at: reservation.ends_at,
                });
            }
        }
        Ok(found)
    }

    /// Whether the class may be used, and when to look again. `None` where there is no verdict now, so that the last one stands.
    async fn judge(
        &self,
        class: &EC2NodeClass,
        found: &LookUps,
        now: Timestamp,
    ) -> (Option<Validation>, Duration) {
        let cluster = self.cluster();
        let again = wait(status::VALIDATE_AGAIN_AFTER);
        if let Some(outcome) = status::validate(class, found, &cluster) {
            // A new leader knows no better than the last one before EKS has answered; no launch goes without either.
            if outcome.is_for_want_of_cluster() && self.waits_for_eks() && status::is_valid(class) {
                return (None, RETRY);
            }
            return (Some(outcome), again);
        }
        if self.options.disable_dry_run {
            return (Some(Validation::Succeeded), again);
        }
        let Ok(tags) = tags::launch(class, "", &self.options.cluster_name) else {
            return (None, again);
        };
        let key = status::verdict_key(class, &tags);
        if let Some(kept) = self
            .verdicts
            .get(class.name())
            .filter(|kept| kept.key == key && kept.until > now)
        {
            return (Some(kept.outcome), again);
        }
        let Some(outcome) = self.rehearse(class, &tags).await else {
            return (None, self.verdicts.pause(class.name()));
        };
        if outcome.is_for_want_of_profile() {
            // Somebody may be about to make it.
            self.verdicts.count_failure(class.name());
            return (Some(outcome), self.verdicts.pause(class.name()));
        }
        let until = now.saturating_add(status::VERDICT_STANDS_FOR);
        let kept = Kept {
            key,
            outcome: outcome.clone(),
            until: until.unwrap_or(Timestamp::MAX),
        };
        self.verdicts.keep(class.name(), kept);
        (Some(outcome), again)
    }

    /// Dry runs (A2.4).
    async fn rehearse(
        &self,
        class: &EC2NodeClass,
        tags: &spokeshave_provider_aws::requests::Tags,
    ) -> Option<Validation> {
        let now = self.clock.now();
        let types = self.market.instance_types(class, &self.options, now)?;
        let pools = self.pools_of(class);
        let waiting = |message: &str| {
            Some(Validation::Waiting {
                reason: "NoInstanceType",
                message: message.to_owned(),
            })
        };
        let Some(choice) = rehearsal::choose(class, &types, &pools) else {
            return waiting(
                "No instance type that the class allows has an image; no launch can be rehearsed",
            );
        };
        let claim = NodeClaim::new("rehearsal", NodeClaimSpec::default());
        let cluster = self.cluster();
        let context = Context {
            class,
            claim: &claim,
            cluster: &cluster,
            region: &self.options.region,
            tags,
            reserved_capacity: self.options.reserved_capacity,
        };
        let templates = match launch::templates(&context, &choice) {
            Ok(templates) => templates,
            Err(error) => return waiting(&error.to_string()),
        };
        let template = templates.first()?;
        self.measure_user_data(class, &template.request);
        let (fleet, instances) = rehearsal::requests(&context, template)?;
        let made = self.templates.ensure(&self.aws, &template.request, now).await;
        if let Some(outcome) = self.said(class, Question::CreateLaunchTemplate, made)? {
            return Some(outcome);
        }
        let answer = self.aws.ec2.create_fleet(&fleet).await.map(drop);
        let answer = answer.map_err(|error| (Question::CreateFleet.action(), error));
        if let Some(outcome) = self.said(class, Question::CreateFleet, answer)? {
            return Some(outcome);
        }
        self.rehearse_instances(class, &instances).await
    }

    /// Dry runs of an instance in each subnet until one is allowed; else the first one's answer counts. When EC2 wants fewer calls before all were asked, the first
    /// answer counts against no class that works: another subnet may be the one that allows it.
    async fn rehearse_instances(
        &self,
        class: &EC2NodeClass,
        instances: &[RunInstancesRequest],
    ) -> Option<Validation> {
        let mut first: Option<ApiError> = None;
        for request in instances {
            let error = match self.aws.ec2.rehearse_run_instances(request).await {
                Err(error) if !error.is_dry_run() => error,
                _ => return Some(Validation::Succeeded),
            };
            // No matter of the subnet: the others would hear the same.
            let is_for_all =
                error.code.is_empty() || error.is_rate_limited() || error.is_instance_profile_not_found();
            if is_for_all {
                first = first.filter(|_| !status::is_valid(class)).or(Some(error));
                break;
            }
            first = first.or(Some(error));
        }
        if first
            .as_ref()
            .is_some_and(ApiError::is_instance_profile_not_found)
            && let Some(outcome) = Validation::without_profile(class)
        {
            return Some(outcome);
        }
        let answer = first.map_or(Ok(()), |error| Err((Question::RunInstances.action(), error)));
        self.said(class, Question::RunInstances, answer)?
    }

    /// What the answer to a dry run means: nothing against the class, something against it, or (`None` around it) no verdict now. Users are told of what will
    /// not pass by itself.
    fn said(
        &self,
        class: &EC2NodeClass,
        question: Question,
        answer: Result<(), (&'static str, ApiError)>,
    ) -> Option<Option<Validation>> {
        let Err((call, error)) = answer else {
            return Some(None);
        };
        match rehearsal::judge(question, Some(&error)) {
            Verdict::Allowed => Some(None),
            Verdict::AskAgain => None,
            Verdict::Refused { reason, message } if call == question.action() => {
                Some(Some(Validation::Failed { reason, message }))
            }
            Verdict::Refused { .. } | Verdict::Unexpected(_) => {
                let told = error.told(call);
                tracing::warn!(
                    EC2NodeClass = class.name(),
                    ?question,
                    error = told,
                    "a launch cannot be rehearsed; it is tried again"
                );
                self.tell_failure(class.name(), &format!("a launch cannot be rehearsed: {told}"));
                self.verdicts.count_failure(class.name());
                None
            }
        }
    }

    /// Shows how large user data has become, and warns once before EC2 refuses it.
    pub(crate) fn measure_user_data(&self, class: &EC2NodeClass, request: &LaunchTemplateRequest) {
        let bytes = request.launch_template_data.user_data.len();
        let is_much = |bytes: usize| bytes * 10 >= LIMIT_BYTES * 9;
        let before = self.aws.meter.user_data(class.name(), bytes);
        if is_much(bytes) && !before.is_some_and(is_much) {
            tracing::warn!(
                EC2NodeClass = class.name(),
                bytes,
                limit_bytes = LIMIT_BYTES,
                "user data is almost as large as EC2 takes; shorten spec.userData"
            );
        }
    }

    fn pools_of(&self, class: &EC2NodeClass) -> Vec<Requirements> {
        let pools = self.pools.all().unwrap_or_default();
        let of_class = pools
            .iter()
            .filter(|pool| pool.node_class_ref().name == class.name());
        of_class
            .filter_map(|pool| Requirements::from_api(&pool.spec.template.spec.requirements).ok())
            .collect()
    }
}
