//! When calls of the API server and of the cloud have failed lately, for the circuit breakers of DisruptionPolicies.
//!
//! It forgets what is older than an hour, and more than a thousand of each. A restart counts from zero; a breaker that has tripped is in the status of its policy.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use spokeshave_model::{Distress, PriceFeed};
use spokeshave_ports::{CloudError, SharedClock};

const KEPT_FOR: SignedDuration = SignedDuration::from_hours(1);
const KEPT: usize = 1000;

#[derive(Debug, Default)]
struct Failed {
    api_server: VecDeque<Timestamp>,
    cloud: VecDeque<Timestamp>,
}

/// What has failed lately. Copies share it.
#[derive(Clone, Debug)]
pub(crate) struct Failures {
    failed: Arc<Mutex<Failed>>,
    clock: SharedClock,
}

impl Failures {
    pub(crate) fn new(clock: SharedClock) -> Self {
        Self {
            failed: Arc::default(),
            clock,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Failed> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request of the API server failed; what it refuses with good reason does not count.
    pub(crate) fn of_api_server(&self, error: &kube::Error) {
        match error {
            kube::Error::Api(status) => self.of_status(status.code),
            kube::Error::Service(_) | kube::Error::HyperError(_) => self.note_api_server(),
            _ => {}
        }
    }

    /// The API server answered a request with this HTTP status; what it refuses with good reason does not count.
    pub(crate) fn of_status(&self, code: u16) {
        if code >= 500 || code == 429 {
            self.note_api_server();
        }
    }

    fn note_api_server(&self) {
        let now = self.clock.now();
        keep(&mut self.lock().api_server, now);
    }

    /// A call of the cloud failed; what it says of a single instance or class does not count.
    pub(crate) fn of_cloud(&self, error: &CloudError) {
        let counts = match error {
            CloudError::InsufficientCapacity(_)
            | CloudError::Create { .. }
            | CloudError::Timeout(_)
            | CloudError::Other(_) => true,
            CloudError::NodeClaimNotFound(_)
            | CloudError::NodeClassNotReady(_)
            | CloudError::Postponed { .. }
            | CloudError::UnevaluatedNodePool(_) => false,
        };
        if counts {
            let now = self.clock.now();
            keep(&mut self.lock().cloud, now);
        }
    }

    /// What is known now.
    pub(crate) fn distress(&self, prices: PriceFeed) -> Distress {
        let now = self.clock.now();
        let mut failed = self.lock();
        let Failed { api_server, cloud } = &mut *failed;
        for times in [&mut *api_server, &mut *cloud] {
            times.retain(|at| now.duration_since(*at) < KEPT_FOR);
        }
        Distress {
            api_server: api_server.iter().copied().collect(),
            cloud: cloud.iter().copied().collect(),
            prices,
        }
    }
}

fn keep(times: &mut VecDeque<Timestamp>, now: Timestamp) {
    times.push_back(now);
    if times.len() > KEPT {
        times.pop_front();
    }
}
