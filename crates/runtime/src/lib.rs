//! A deterministic controller runtime over kube's watcher.
//!
//! ```text
//! watcher ─► Store ─► Change ─► WorkQueue ─► reconcile ─► Client ─► API server
//!              ▲                    │            │
//!              └── write-through ───┼────────────┘
//!                     Clock, Entropy, Leadership, Metrics
//! ```
//!
//! Owns what every controller needs and none should write itself: ordered stores, queues, the reconcile driver, leader
//! election, events, metrics, readiness, shutdown and client middleware. It knows nothing of nodes. Time comes from `Clock`
//! and chance from `Entropy`; every container is ordered: on one thread and a paused clock, two runs with one seed send the
//! same requests in the same order, byte for byte.

mod api;
mod backoff;
pub mod client;
mod client_writes;
mod controller;
mod events;
mod lease;
mod lease_thread;
mod metrics;
mod queue;
mod raw;
mod read_only;
mod readiness;
mod reflector;
mod server;
mod shutdown;
mod store;

pub use api::Api;
pub use backoff::{Backoff, RateLimit, TokenBucket};
pub use client_writes::ClientWrites;
pub use controller::{
    ControllerMetrics, ReconcileError, Requeue, SINGLETON, Singleton, run_controller, run_singleton,
};
pub use events::{EventKind, EventNotice, EventRecorder, EventRecorderOptions, EventWriter};
pub use lease::{ElectionOutcome, Epoch, LeaderElection, Leadership, LeaseOptions, NotLeader};
pub use lease_thread::ElectionThread;
pub use metrics::{
    Copies, Counter, DEFAULT_BUCKETS, FamilyShape, Gauge, Histogram, Metrics, STANDARD_BUCKETS, Summary,
    Tallies, exponential_buckets,
};
pub use queue::{QueueOptions, WorkQueue};
pub use read_only::{WriteRefused, read_only};
pub use readiness::Readiness;
pub use reflector::{Reflector, WatchOptions, watch_failures};
pub use server::{Document, HttpServer, bind};
pub use shutdown::{Shutdown, TaskGroup, panics_here};
pub use store::{Change, Index, Object, ObjectKey, Store, StoreOptions, Subscription};
