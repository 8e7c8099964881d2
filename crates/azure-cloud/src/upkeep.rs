//! What the leader does besides answering core: the market and classes, beside what is being made and what is left over, which
//! [`left_over`](crate::left_over) looks after.
//!
//! Owns the periods. Each part goes on when another fails.

use std::time::Duration;

use jiff::SignedDuration;
use spokeshave_api::AKSNodeClass;
use spokeshave_api::aks_node_class::NodeImage;
use spokeshave_ports::Writes;
use spokeshave_provider_azure::errors::ArmError;
use spokeshave_provider_azure::images::{self, Definition};
use spokeshave_provider_azure::instance_types::ProvisionMode;
use spokeshave_provider_azure::status::{self, ImageProblem, LookUps, SubnetProblem};

use crate::provider::{AzureProvider, Inner};

/// Sizes and prices are asked for this often (Z4, Z5).
const MARKET_PERIOD: Duration = Duration::from_secs(12 * 3600);
/// Quotas are asked for this often (Z4).
const QUOTA_PERIOD: Duration = Duration::from_secs(10 * 60);
/// Pause after a question that failed, unless Azure asks for a longer one.
const RETRY: Duration = Duration::from_secs(10);

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
    pub(crate) async fn lead(&self, writes: &dyn Writes) {
        futures::join!(
            self.follow_market(),
            self.follow_operations(),
            self.sweep(),
            self.reconcile_classes(writes),
            self.hear_nodes(),
            self.keep_tags(writes),
        );
    }

    async fn pause(&self, what: &str, answer: Result<(), ArmError>, period: Duration) {
        match answer {
            Ok(()) => self.clock().sleep(period).await,
            Err(error) => {
                tracing::warn!(%error, "asking for {what}");
                let asked = error.retry_after.and_then(|wait| Duration::try_from(wait).ok());
                let wait = asked.unwrap_or_default().clamp(RETRY, period);
                self.clock().sleep(wait).await;
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
            let versions = self.galleries.node_images(&self.calls()).await;
            let versions = versions.map_err(|error| ImageProblem::Call(error.to_string()))?;
            let newest = |definition: Definition| (definition, definition.newest_of_aks(&versions));
            let found = definitions.into_iter().map(newest).collect();
            return self.with_known(class, found, Definition::aks_name);
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
            let versions = self.galleries.versions(&self.calls(), &definition).await;
            let versions = versions.map_err(|error| ImageProblem::Call(error.to_string()))?;
            found.push((definition, definition.newest_image(&versions)));
        }
        self.with_known(class, found, Definition::image_id)
    }

    /// The images that were found, and those that the class has of definitions of which there is none now.
    fn with_known(
        &self,
        class: &AKSNodeClass,
        found: Vec<(Definition, Option<NodeImage>)>,
        id: fn(&Definition, &str) -> String,
    ) -> Result<Vec<NodeImage>, ImageProblem> {
        let known = class.status.as_ref().map_or(&[][..], |status| &status.images);
        let now = self.clock().now();
        let kept = |(definition, image): (Definition, Option<NodeImage>)| {
            let of_class = || definition.known(known, id);
            (definition, self.galleries.kept(&definition, image, of_class, now))
        };
        let images: Vec<_> = found.into_iter().map(kept).collect();
        Ok(images::images(&images)?)
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
