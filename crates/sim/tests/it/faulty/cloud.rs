//! The kwok cloud with faults: it hangs, lies, leaves out and says twice, as a test asks it to.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use kube::api::DynamicObject;
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_model::InstanceType;
use spokeshave_model::interruption::InterruptionKind;
use spokeshave_ports::{
    CloudError, CloudFuture, CloudProvider, Interruption, Interruptions, NodeClassKind, RegistrationHook,
    RepairPolicy, SharedWrites, WatchFailures,
};
use spokeshave_provider_kwok::KwokProvider;

/// What a cloud does wrong.
#[derive(Debug, Default)]
pub struct Faults {
    /// Launches for these NodePools never answer, and make nothing.
    pub hanging_pools: Mutex<BTreeSet<String>>,
    /// Launches for these NodePools find no capacity.
    pub short_pools: Arc<Mutex<BTreeSet<String>>>,
    /// Deletions fail with this text.
    pub delete_error: Mutex<Option<String>>,
    /// Deletions, and questions about a single instance, are postponed for this reason.
    pub postponed: Mutex<Option<String>>,
    /// Launches, deletions and acknowledgements take a break of this length before they change anything, as between two requests.
    pub break_of_changes: Mutex<Option<Duration>>,
    /// Deletions that have begun.
    pub deletions: AtomicU64,
    /// Deletions and questions never answer.
    pub hang: AtomicBool,
    /// Lists fail with this text.
    pub list_error: Mutex<Option<String>>,
    /// Instances that are left out of lists although they run, by provider ID.
    pub unlisted: Mutex<BTreeSet<String>>,
    /// Every instance is listed twice.
    pub duplicates: AtomicBool,
    /// Deletions answer "gone" and end nothing.
    pub lies: AtomicBool,
    /// The cloud's reply about drift of every instance; an empty string is an error.
    pub drift: Mutex<Option<String>>,
    /// Every instance has drifted for which the cloud is shown a NodeClass without this annotation.
    pub launched_from: Mutex<Option<String>>,
    /// The offerings of the cloud, instead of its own catalog.
    pub catalog: Mutex<Option<Arc<[InstanceType]>>>,
    /// Requested launches.
    pub launches: AtomicU64,
    /// Questions about the drift of an instance.
    pub drift_questions: AtomicU64,
    /// The cloud's replies about its instances, once overridden by a test.
    pub messages: Mutex<Option<UnboundedReceiver<Interruption>>>,
    /// What its leaders were given to write with, in order.
    pub terms: Mutex<Vec<SharedWrites>>,
    /// Whoever listens to the messages next panics.
    pub messages_panic: AtomicBool,
    /// Acknowledgements that have begun.
    pub acknowledgements: AtomicU64,
    /// Messages that were acknowledged, by ID.
    pub acknowledged: Mutex<Vec<String>>,
    /// Failures of watches of the cloud's own.
    pub watch_failures: WatchFailures,
}

/// A message about an instance, without any time.
pub fn message(id: &str, provider_id: &str, kind: Result<InterruptionKind, String>) -> Interruption {
    Interruption {
        id: id.to_owned(),
        provider_id: provider_id.to_owned(),
        kind,
        sent_at: None,
        ends_at: None,
    }
}

/// The kwok cloud with faults.
#[derive(Debug)]
pub struct Faulty {
    pub inner: Arc<KwokProvider>,
    pub faults: Arc<Faults>,
    pub hooks: Vec<Arc<dyn RegistrationHook>>,
}

impl Faults {
    /// The next operator receives what is sent here.
    pub fn speak(&self) -> UnboundedSender<Interruption> {
        let (sender, receiver) = unbounded();
        *self.messages.lock().unwrap() = Some(receiver);
        sender
    }
}

impl Faulty {
    /// Launches for this NodeClaim never answer.
    fn hangs(&self, claim: &NodeClaim) -> bool {
        let pool = claim.node_pool().unwrap_or_default();
        self.faults.hanging_pools.lock().unwrap().contains(pool)
    }

    /// What the cloud answers while it postpones.
    fn postponed(&self) -> Option<CloudError> {
        let message = self.faults.postponed.lock().unwrap().clone()?;
        let again_after = Duration::from_secs(30);
        Some(CloudError::Postponed { message, again_after })
    }

    /// A call that changes something, after the break that it takes.
    fn after_break<'a, T: 'a>(&self, call: CloudFuture<'a, T>) -> CloudFuture<'a, T> {
        let length = *self.faults.break_of_changes.lock().unwrap();
        async move {
            if let Some(length) = length {
                tokio::time::sleep(length).await;
            }
            call.await
        }
        .boxed()
    }

    /// Nothing is left for this NodeClaim.
    fn is_short(&self, claim: &NodeClaim) -> bool {
        let pool = claim.node_pool().unwrap_or_default();
        self.faults.short_pools.lock().unwrap().contains(pool)
    }
}

impl CloudProvider for Faulty {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn supported_node_classes(&self) -> &[NodeClassKind] {
        self.inner.supported_node_classes()
    }

    fn create<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, NodeClaim> {
        if self.hangs(claim) {
            return std::future::pending().boxed();
        }
        self.faults.launches.fetch_add(1, Ordering::Relaxed);
        if self.is_short(claim) {
            return async { Err(CloudError::InsufficientCapacity("none is left".to_owned())) }.boxed();
        }
        self.after_break(self.inner.create(claim))
    }

    fn create_from<'a>(
        &'a self,
        claim: &'a NodeClaim,
        types: &'a [InstanceType],
    ) -> CloudFuture<'a, NodeClaim> {
        if self.hangs(claim) {
            return std::future::pending().boxed();
        }
        self.faults.launches.fetch_add(1, Ordering::Relaxed);
        if self.is_short(claim) {
            return async { Err(CloudError::InsufficientCapacity("none is left".to_owned())) }.boxed();
        }
        self.after_break(self.inner.create_from(claim, types))
    }

    fn delete<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, ()> {
        if self.faults.hang.load(Ordering::Relaxed) {
            return std::future::pending().boxed();
        }
        if let Some(error) = self.faults.delete_error.lock().unwrap().clone() {
            return async move { Err(CloudError::Other(error)) }.boxed();
        }
        if let Some(answer) = self.postponed() {
            return async move { Err(answer) }.boxed();
        }
        if self.faults.lies.load(Ordering::Relaxed) {
            return async { Err(CloudError::NodeClaimNotFound("it says".to_owned())) }.boxed();
        }
        self.faults.deletions.fetch_add(1, Ordering::Relaxed);
        self.after_break(self.inner.delete(claim))
    }

    fn get<'a>(&'a self, provider_id: &'a str) -> CloudFuture<'a, NodeClaim> {
        if self.faults.hang.load(Ordering::Relaxed) {
            return std::future::pending().boxed();
        }
        if let Some(answer) = self.postponed() {
            return async move { Err(answer) }.boxed();
        }
        self.inner.get(provider_id)
    }

    fn list(&self) -> CloudFuture<'_, Vec<NodeClaim>> {
        async move {
            let error = self.faults.list_error.lock().unwrap().clone();
            if let Some(error) = error {
                return Err(CloudError::Other(error));
            }
            let mut found = self.inner.list().await?;
            let unlisted = self.faults.unlisted.lock().unwrap().clone();
            found.retain(|one| !one.provider_id().is_some_and(|id| unlisted.contains(id)));
            if self.faults.duplicates.load(Ordering::Relaxed) {
                found.extend(found.clone());
            }
            Ok(found)
        }
        .boxed()
    }

    fn registration_hooks(&self) -> &[Arc<dyn RegistrationHook>] {
        &self.hooks
    }

    fn instance_types<'a>(&'a self, pool: &'a NodePool) -> CloudFuture<'a, Arc<[InstanceType]>> {
        match self.faults.catalog.lock().unwrap().clone() {
            Some(catalog) => async move { Ok(catalog) }.boxed(),
            None => self.inner.instance_types(pool),
        }
    }

    fn interruptions(&self) -> Option<Interruptions<'_>> {
        if self.faults.messages_panic.swap(false, Ordering::Relaxed) {
            return Some(futures::stream::poll_fn(|_| panic!("a bug")).boxed());
        }
        let messages = self.faults.messages.lock().unwrap().take();
        messages.map(|messages| messages.boxed())
    }

    fn acknowledge<'a>(&'a self, message: &'a Interruption) -> CloudFuture<'a, ()> {
        self.faults.acknowledgements.fetch_add(1, Ordering::Relaxed);
        let acknowledged = async move {
            self.faults.acknowledged.lock().unwrap().push(message.id.clone());
            Ok(())
        };
        self.after_break(acknowledged.boxed())
    }

    fn is_drifted<'a>(
        &'a self,
        claim: &'a NodeClaim,
        class: Option<&'a DynamicObject>,
    ) -> CloudFuture<'a, Option<String>> {
        self.faults.drift_questions.fetch_add(1, Ordering::Relaxed);
        let mut said = self.faults.drift.lock().unwrap().clone();
        if let Some(key) = &*self.faults.launched_from.lock().unwrap() {
            let annotations = class.and_then(|class| class.metadata.annotations.as_ref());
            let is_as_before = annotations.is_some_and(|all| all.contains_key(key));
            said = (!is_as_before).then(|| "NodeClassDrift".to_owned());
        }
        match said.as_deref() {
            None => self.inner.is_drifted(claim, class),
            Some("") => async { Err(CloudError::Other("no images are resolved".to_owned())) }.boxed(),
            Some(_) => async move { Ok(said) }.boxed(),
        }
    }

    fn repair_policies(&self) -> &[RepairPolicy] {
        self.inner.repair_policies()
    }

    fn watch_failures(&self) -> Option<&WatchFailures> {
        Some(&self.faults.watch_failures)
    }

    fn lead(&self, writes: SharedWrites) -> BoxFuture<'_, ()> {
        self.faults.terms.lock().unwrap().push(writes.clone());
        self.inner.lead(writes)
    }
}
