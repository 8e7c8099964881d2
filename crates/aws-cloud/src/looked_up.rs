//! What selectors of a class have found, while it is not due to be looked for again (A10: `AMI_REFRESH_INTERVAL`, `SUBNET_REFRESH_INTERVAL`).
//!
//! Owns the answers and their age. An empty answer is never kept: what was not found is looked for again at once.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use spokeshave_api::EC2NodeClass;
use spokeshave_api::ec2_node_class::Ami;
use spokeshave_ports::SharedClock;
use spokeshave_provider_aws::status::FoundSubnet;

/// Answers by class.
#[derive(Debug, Default)]
pub(crate) struct LookedUp(Mutex<BTreeMap<String, Answers>>);

#[derive(Debug, Default)]
struct Answers {
    /// UID and generation of the class that was asked for.
    of: (Option<String>, Option<i64>),
    images: Option<(Timestamp, Vec<Ami>)>,
    /// Minor version of Kubernetes that the images were looked for.
    images_for: u32,
    subnets: Option<(Timestamp, Vec<FoundSubnet>)>,
}

fn identity(class: &EC2NodeClass) -> (Option<String>, Option<i64>) {
    (class.metadata.uid.clone(), class.metadata.generation)
}

fn young<T: Clone>(kept: Option<&(Timestamp, T)>, clock: &SharedClock, interval: Duration) -> Option<T> {
    let (at, answer) = kept?;
    (clock.since(*at) < interval).then(|| answer.clone())
}

impl LookedUp {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Answers>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The images of a class that were found for this version of Kubernetes, and no longer ago than this.
    pub(crate) fn images(
        &self,
        class: &EC2NodeClass,
        minor: u32,
        clock: &SharedClock,
        interval: Duration,
    ) -> Option<Vec<Ami>> {
        let kept = self.lock();
        let answers = kept.get(class.name()).filter(|kept| kept.of == identity(class))?;
        young(answers.images.as_ref(), clock, interval).filter(|_| answers.images_for == minor)
    }

    /// The subnets of a class that were found no longer ago than this.
    pub(crate) fn subnets(
        &self,
        class: &EC2NodeClass,
        clock: &SharedClock,
        interval: Duration,
    ) -> Option<Vec<FoundSubnet>> {
        let kept = self.lock();
        let answers = kept.get(class.name()).filter(|kept| kept.of == identity(class))?;
        young(answers.subnets.as_ref(), clock, interval)
    }

    fn change(&self, class: &EC2NodeClass, change: impl FnOnce(&mut Answers)) {
        let mut kept = self.lock();
        let answers = kept.entry(class.name().to_owned()).or_default();
        if answers.of != identity(class) {
            *answers = Answers {
                of: identity(class),
                ..Answers::default()
            };
        }
        change(answers);
    }

    /// Keeps images that were found at a time for a version of Kubernetes.
    pub(crate) fn keep_images(&self, class: &EC2NodeClass, minor: u32, images: &[Ami], at: Timestamp) {
        if !images.is_empty() {
            self.change(class, |kept| {
                kept.images = Some((at, images.to_vec()));
                kept.images_for = minor;
            });
        }
    }

    /// Keeps subnets that were found at a time.
    pub(crate) fn keep_subnets(&self, class: &EC2NodeClass, subnets: &[FoundSubnet], at: Timestamp) {
        if !subnets.is_empty() {
            self.change(class, |kept| kept.subnets = Some((at, subnets.to_vec())));
        }
    }

    /// Forgets a class that is gone.
    pub(crate) fn forget(&self, exists: impl Fn(&str) -> bool) {
        self.lock().retain(|name, _| exists(name));
    }
}
