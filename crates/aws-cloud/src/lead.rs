//! What the leader does besides answering core: watches, the market, classes, tags, and what is left over in AWS.
//!
//! Owns the periods. Each part goes on when another fails.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use spokeshave_api::{EC2NodeClass, NodeClaim};
use spokeshave_ports::{Write, WriteTarget, Writes};
use spokeshave_provider_aws::errors::ApiError;
use spokeshave_provider_aws::instances;
use spokeshave_provider_aws::prices;
use spokeshave_provider_aws::profiles;
use spokeshave_provider_aws::requests::look_up::{InstancesRequest, TagsRequest};
use spokeshave_provider_aws::tags;

use crate::belongings::plain;
use crate::provider::Inner;

/// Types, zones and prices are asked for this often (A3.1, A4.2, A4.3).
const MARKET_PERIOD: Duration = Duration::from_secs(12 * 3600);
/// Pause after a question about the market that failed.
const MARKET_RETRY: Duration = Duration::from_secs(10);
/// Pause before EKS is asked again about a cluster that it has described before, or in part.
const CLUSTER_RETRY: Duration = Duration::from_secs(60);
/// A class that was ready stays so for this long while EKS does not answer a new leader.
const CLUSTER_GRACE: Duration = Duration::from_secs(5 * 60);
/// Launch templates that nobody uses are looked for this often.
const SWEEP_PERIOD: Duration = Duration::from_secs(10);
/// One instance is tagged in this time, so that tags do not use up what launches need of EC2's rate.
const TAG_PERIOD: Duration = Duration::from_secs(1);
/// Pause before an instance that could not be tagged gets its next attempt; doubled with each failure.
const TAG_RETRY: SignedDuration = SignedDuration::from_secs(10);
/// The longest of these pauses.
const TAG_RETRY_MAX: SignedDuration = SignedDuration::from_mins(10);
/// Instance profiles that nobody uses are looked for this often.
const PROFILES_PERIOD: Duration = Duration::from_secs(30 * 60);

/// Annotation of NodeClaims whose instance has its tags.
const TAGGED: &str = "karpenter.k8s.aws/tagged";

/// Failed attempts to tag the instance of one NodeClaim.
#[derive(Debug, Clone, Copy)]
struct Untagged {
    retry_at: Timestamp,
    pause: SignedDuration,
}

impl Untagged {
    fn after(previous: Option<Untagged>, now: Timestamp) -> Self {
        let pause = previous.map_or(TAG_RETRY, |it| it.pause.saturating_mul(2).min(TAG_RETRY_MAX));
        let retry_at = now.saturating_add(pause).unwrap_or(Timestamp::MAX);
        Untagged { retry_at, pause }
    }
}

impl Inner {
    /// What only reads: watches and the market. Works for as long as it is polled.
    pub(crate) async fn follow(&self) {
        let client = || self.client.clone();
        futures::join!(
            self.classes.watch(client(), &self.clock, &self.watch_failures),
            self.claims.watch(client(), &self.clock, &self.watch_failures),
            self.pools.watch(client(), &self.clock, &self.watch_failures),
            self.follow_cluster(),
            self.follow_types(),
            self.follow_prices(),
            self.follow_overlays(),
            self.follow_shifts(),
            self.version.follow(&self.client, &self.clock),
            self.dns.follow(&self.client, &self.clock),
            self.learn_memory(),
        );
    }

    /// All of it. Works for as long as it is polled.
    pub(crate) async fn lead(&self, writes: &dyn Writes) {
        // Somebody else may have led since, and have ended what EC2 has launched for calls of then.
        self.recent.forget_flights();
        // What classes are judged by is what nodes are launched with.
        self.dns.find(&self.client, &self.clock).await;
        futures::join!(
            self.follow(),
            self.read_reservations(false),
            self.reconcile_classes(writes),
            self.sweep_templates(),
            self.tag_instances(writes),
            self.follow_reservations(writes),
            self.collect_profiles(),
        );
    }

    /// What EKS says of the cluster: until it has said so once, nothing is launched that needs to know it.
    async fn follow_cluster(&self) {
        // Whoever led or followed before may have waited in vain for long: the time of this leader begins now.
        self.eks_refuses.store(false, Ordering::Relaxed);
        let began = self.clock.elapsed();
        loop {
            match self.aws.eks.cluster(&self.options.cluster_name).await {
                Ok(cluster) => {
                    // One that is being made has no address yet.
                    let is_whole = !cluster.endpoint.is_empty();
                    self.set_cluster(cluster);
                    let pause = if is_whole { MARKET_PERIOD } else { CLUSTER_RETRY };
                    self.clock.sleep(pause).await;
                }
                Err(error) => {
                    tracing::warn!(cluster = self.options.cluster_name, %error, "eks:DescribeCluster failed; it is tried again");
                    let call = "eks:DescribeCluster";
                    let is_unknown = error.code == "ResourceNotFoundException";
                    let is_late = self.clock.elapsed().saturating_sub(began) >= CLUSTER_GRACE;
                    let is_refused = is_unknown || error.is_unauthorized() || is_late;
                    self.eks_refuses.store(is_refused, Ordering::Relaxed);
                    if is_unknown {
                        let effect = "EKS has no cluster of the name in CLUSTER_NAME, so that its endpoint and address range are not known";
                        self.tell_hindrance(call, effect, &error);
                    }
                    let effect = "endpoint and address range of the cluster are not read";
                    self.tell_denied(call, effect, &error);
                    let is_known = self.described_cluster().is_some();
                    let pause = if is_known { CLUSTER_RETRY } else { MARKET_RETRY };
                    self.clock.sleep(pause).await;
                }
            }
        }
    }

    /// Whether EKS has neither described the cluster yet nor refused to, and still has time left to answer.
    pub(crate) fn waits_for_eks(&self) -> bool {
        self.described_cluster().is_none() && !self.eks_refuses.load(Ordering::Relaxed)
    }

    async fn follow_types(&self) {
        loop {
            let pause = match self.market.discover(&self.aws).await {
                Ok(()) => MARKET_PERIOD,
                Err(error) => {
                    tracing::error!(
                        error,
                        "cannot read the instance types of the region; it is tried again"
                    );
                    // No class is reconciled before the types are known: each says why.
                    if !self.market.is_known() {
                        for class in self.classes.all().unwrap_or_default() {
                            self.tell_failure(class.name(), &error);
                        }
                    }
                    MARKET_RETRY
                }
            };
            self.clock.sleep(pause).await;
        }
    }

    async fn follow_prices(&self) {
        loop {
            let mut pause = MARKET_PERIOD;
            if let Err(error) = self.market.refresh_spot(&self.aws, self.clock.now()).await {
                tracing::error!(%error, "cannot read spot prices; the last ones count, and it is tried again");
                let effect = "spot prices are not read, and the last ones count";
                self.tell_denied("ec2:DescribeSpotPriceHistory", effect, &error);
                pause = MARKET_RETRY * 30;
            }
            // GovCloud has no pricing service, and an isolated network no way to it.
            let has_prices = !self.options.isolated_vpc && !self.options.region.starts_with("us-gov-");
            if has_prices
                && let Err(error) = self
                    .market
                    .refresh_on_demand(&self.aws, &self.options.region)
                    .await
            {
                tracing::warn!(%error, "cannot read on-demand prices; the last ones count, and it is tried again");
                let effect = "on-demand prices are not read, and the last ones count";
                self.tell_denied("pricing:GetProducts", effect, &error);
                pause = MARKET_RETRY * 30;
            }
            self.clock.sleep(pause).await;
        }
    }

    /// What NodeOverlays say of types that have no price (A4.1).
    async fn follow_overlays(&self) {
        if self.options.node_overlays {
            let client = self.client.clone();
            futures::join!(
                self.overlays.watch(client, &self.clock, &self.watch_failures),
                self.price_by_overlays(),
            );
        }
    }

    async fn price_by_overlays(&self) {
        loop {
            self.overlays.changed().await;
            if let Some(overlays) = self.overlays.all() {
                let prices = prices::of_overlays(overlays.iter().map(AsRef::as_ref));
                self.market.set_overlaid(prices);
            }
        }
    }

    /// Removes unused launch templates, those of an earlier leader included: they are asked for until EC2 has answered once.
    async fn sweep_templates(&self) {
        let name = &self.options.cluster_name;
        let mut is_hydrated = false;
        loop {
            if !is_hydrated {
                match self.templates.hydrate(&self.aws, name, self.clock.now()).await {
                    Ok(()) => is_hydrated = true,
                    Err(error) => {
                        tracing::warn!(
                            %error,
                            "ec2:DescribeLaunchTemplates failed: launch templates of an earlier leader are not known yet; it is tried again"
                        );
                        let effect = "launch templates of an earlier leader are not removed";
                        self.tell_denied("ec2:DescribeLaunchTemplates", effect, &error);
                    }
                }
            }
            self.clock.sleep(SWEEP_PERIOD).await;
            if let Err(error) = self.templates.sweep(&self.aws, self.clock.now()).await {
                let effect = "launch templates that nobody uses are not removed";
                self.tell_denied("ec2:DeleteLaunchTemplate", effect, &error);
            }
        }
    }

    /// Tags that are known only when the Node has joined. An instance that cannot be tagged waits for its next attempt; the others go on.
    async fn tag_instances(&self, writes: &dyn Writes) {
        let mut failed: BTreeMap<String, Untagged> = BTreeMap::new();
        loop {
            self.clock.sleep(TAG_PERIOD).await;
            let now = self.clock.now();
            let mut waiting = self.claims.all().unwrap_or_default();
            waiting.retain(|claim| self.waits_for_tags(claim));
            failed.retain(|name, _| waiting.iter().any(|claim| claim.name() == name));
            let retry_at = |claim: &NodeClaim| failed.get(claim.name()).map(|it| it.retry_at);
            let due = waiting
                .iter()
                .filter(|claim| retry_at(claim).is_none_or(|at| at <= now));
            // Those that have not failed yet come first.
            let Some(claim) = due.min_by_key(|claim| retry_at(claim)) else {
                continue;
            };
            if let Err(error) = self.tag(claim, writes).await {
                let untagged = Untagged::after(failed.get(claim.name()).copied(), self.clock.now());
                tracing::warn!(
                    NodeClaim = claim.name(),
                    error,
                    seconds = untagged.pause.as_secs(),
                    "cannot tag the instance; it is tried again after this pause"
                );
                failed.insert(claim.name().to_owned(), untagged);
            }
        }
    }

    fn waits_for_tags(&self, claim: &NodeClaim) -> bool {
        let status = claim.status.as_ref();
        let is_named = status.is_some_and(|status| status.node_name.is_some());
        let provider_id = claim.provider_id().unwrap_or_default();
        is_named
            && claim.spec.node_class_ref.group == EC2NodeClass::GROUP
            && !instances::zone(provider_id).is_some_and(|zone| self.is_shifted(zone))
            && claim.metadata.deletion_timestamp.is_none()
            && claim.annotation(TAGGED).is_none()
    }

    async fn tag(&self, claim: &NodeClaim, writes: &dyn Writes) -> Result<(), String> {
        let status = claim.status.as_ref();
        let provider_id = status
            .and_then(|status| status.provider_id.as_deref())
            .unwrap_or_default();
        let node_name = status
            .and_then(|status| status.node_name.as_deref())
            .unwrap_or_default();
        if let Some(id) = instances::instance_id(provider_id) {
            let request = InstancesRequest {
                instance_ids: vec![id.to_owned()],
                ..InstancesRequest::default()
            };
            let failed = |call: &'static str| {
                move |error: ApiError| {
                    self.tell_denied(call, "instances do not get the tags with their names", &error);
                    error.told(call)
                }
            };
            let found = self.aws.ec2.instances(&request).await;
            let found = found.map_err(failed("ec2:DescribeInstances"))?;
            if let Some(instance) = found.into_iter().find(|one| one.id == id) {
                let missing = tags::missing_after_registration(
                    &instance.tags,
                    claim.name(),
                    node_name,
                    &self.options.cluster_name,
                );
                if !missing.0.is_empty() {
                    let request = TagsRequest {
                        resource_ids: vec![id.to_owned()],
                        tags: missing,
                    };
                    let tagged = self.aws.ec2.create_tags(&request).await;
                    tagged.map_err(failed("ec2:CreateTags"))?;
                }
            }
        }
        let write = Write {
            target: WriteTarget::NodeClaim,
            name: claim.name().to_owned(),
            patch: json!({"metadata": {"annotations": {TAGGED: "true"}}}),
        };
        match self.claims.write(writes, write).await {
            Err(error) if !error.is_not_found() => Err(error.to_string()),
            _ => Ok(()),
        }
    }

    /// Instance profiles that no class has (any more).
    async fn collect_profiles(&self) {
        if self.options.isolated_vpc {
            return;
        }
        let mut unused = profiles::Unused::default();
        loop {
            self.clock.sleep(PROFILES_PERIOD).await;
            // One that is left out, because it cannot be read, may use a profile all the same.
            let (Ok(classes), Ok(claims)) = (self.classes.complete(), self.claims.complete()) else {
                continue;
            };
            let (region, cluster) = (&self.options.region, &self.options.cluster_name);
            let found = match self
                .aws
                .iam
                .profiles(&profiles::cluster_path(region, cluster))
                .await
            {
                Ok(found) => found,
                Err(error) => {
                    tracing::warn!(%error, "iam:ListInstanceProfiles failed; unused instance profiles stay");
                    // Where classes name their profiles, none are made, and the operator needs no rights in IAM.
                    if classes.iter().any(|class| class.spec.role.is_some()) {
                        let effect = "instance profiles that no class uses are not removed";
                        self.tell_denied("iam:ListInstanceProfiles", effect, &error);
                    }
                    continue;
                }
            };
            let found: Vec<profiles::Profile> = found.into_iter().map(plain).collect();
            let users = profiles::Users::of(
                classes.iter().map(AsRef::as_ref),
                claims.iter().map(AsRef::as_ref),
                region,
                cluster,
            );
            let now = self.clock.now();
            for profile in unused.to_delete(&found, region, cluster, &users, now) {
                if let Err(error) = self.remove_profile(profile).await {
                    tracing::warn!(
                        instance_profile = profile.name,
                        error,
                        "cannot remove an instance profile that no class uses"
                    );
                }
            }
        }
    }
}
