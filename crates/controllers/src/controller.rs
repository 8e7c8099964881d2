//! What a controller is: a name, keys, what brings keys into its queue, and one look at a key.
//!
//! Owns how controllers are put into a list and started. Which there are is the operator's to say; what they do is theirs.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use spokeshave_runtime::{
    Change, ControllerMetrics, Metrics, Object, QueueOptions, RateLimit, ReconcileError, Requeue, Shutdown,
    Store, TaskGroup, WorkQueue, run_controller,
};

use crate::options::Options;
use crate::state::cluster::Cluster;
use crate::state::stores::Stores;

/// What one look at a key comes to.
pub(crate) type Looked = Result<Requeue, ReconcileError>;

/// A controller: one file, and one line in the operator's list.
pub(crate) trait Controller: Send + Sync + 'static {
    /// Its name in metrics and logs.
    const NAME: &'static str;
    /// Pauses between two looks at a key that fails: the first, and the longest.
    const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));
    /// What it looks at, one at a time.
    type Key: Ord + Clone + Display + Send + Sync + 'static;

    /// How many keys are looked at at once.
    fn workers(_options: &Options) -> usize {
        100
    }

    /// Looks at keys that fail, over all of them: how many a second, and how many at once.
    fn retry_bucket(_options: &Options) -> Option<(f64, u32)> {
        RateLimit::DEFAULT.bucket
    }

    /// What brings keys into its queue; nothing for one that is handed its keys.
    fn subscribe(self: &Arc<Self>, _on: &mut Triggers<'_, Self::Key>) {}

    /// One look at a key.
    fn reconcile(self: Arc<Self>, key: Self::Key) -> impl Future<Output = Looked> + Send;
}

/// What brings keys into the queue of a controller.
pub(crate) struct Triggers<'a, Key> {
    cluster: &'a Arc<Cluster>,
    queue: WorkQueue<Key>,
    loops: &'a mut Vec<Loop>,
}

impl<Key: Ord + Clone + Send + Sync + 'static> Triggers<'_, Key> {
    /// A key that is looked at as soon as there is a worker.
    pub(crate) fn first(&mut self, key: Key) {
        self.queue.add(key);
    }

    /// Keys that a change of an object stands for. The function runs where the change happens: it must be short and must not write.
    pub(crate) fn change<K: Object, Keys: IntoIterator<Item = Key>>(
        &mut self,
        store: impl Fn(&Stores) -> &Store<K>,
        mut keys: impl FnMut(&Stores, &Change<K>) -> Keys + Send + 'static,
    ) {
        let (queue, stores) = (self.queue.clone(), self.cluster.stores.clone());
        store(&self.cluster.stores).on_change(move |change| {
            for key in keys(&stores, change) {
                queue.add(key);
            }
        });
    }

    /// The same, some time after the change: several changes within it count as one.
    pub(crate) fn change_after<K: Object, Keys: IntoIterator<Item = Key>>(
        &mut self,
        delay: Duration,
        store: impl Fn(&Stores) -> &Store<K>,
        mut keys: impl FnMut(&Stores, &Change<K>) -> Keys + Send + 'static,
    ) {
        let (queue, stores) = (self.queue.clone(), self.cluster.stores.clone());
        store(&self.cluster.stores).on_change(move |change| {
            for key in keys(&stores, change) {
                queue.add_after(key, delay);
            }
        });
    }

    /// Keys that a change of some NodeClass stands for.
    pub(crate) fn node_classes<Keys: IntoIterator<Item = Key>>(
        &mut self,
        name: &'static str,
        keys: impl Fn(&Stores) -> Keys + Send + Sync + 'static,
    ) where
        Keys::IntoIter: Send,
    {
        let (queue, cluster) = (self.queue.clone(), self.cluster.clone());
        let follow = move |shutdown: Shutdown| {
            async move {
                let mut changes = cluster.node_classes.changes();
                while let Some(Ok(())) = shutdown.cut(changes.changed()).await {
                    for key in keys(&cluster.stores) {
                        queue.add(key);
                    }
                }
            }
            .boxed()
        };
        self.loops.push(Loop {
            name,
            run: Box::new(follow),
        });
    }
}

/// A controller that was made, or `None` where it is not wanted.
pub(crate) trait Made {
    /// Which controller.
    type Controller: Controller;
    /// The controller, if it is wanted.
    fn wanted(&self) -> Option<Arc<Self::Controller>>;
}

impl<C: Controller> Made for Arc<C> {
    type Controller = C;
    fn wanted(&self) -> Option<Arc<C>> {
        Some(self.clone())
    }
}

impl<C: Controller> Made for Option<Arc<C>> {
    type Controller = C;
    fn wanted(&self) -> Option<Arc<C>> {
        self.clone()
    }
}

type KeyOf<M> = <<M as Made>::Controller as Controller>::Key;

/// Work that goes on until shutdown, without keys.
struct Loop {
    name: &'static str,
    run: Box<dyn FnOnce(Shutdown) -> BoxFuture<'static, ()> + Send>,
}

/// Serves a queue until shutdown.
type Serve = Box<dyn FnOnce(Shutdown, ControllerMetrics) -> BoxFuture<'static, ()> + Send>;

/// The controllers of one term, in order. They hear of changes from the moment they are in the list, and work from `start` on.
pub(crate) struct Controllers<'a> {
    cluster: &'a Arc<Cluster>,
    metrics: &'a Metrics,
    queues: Vec<(&'static str, Serve)>,
    loops: Vec<Loop>,
}

impl<'a> Controllers<'a> {
    /// None yet.
    pub(crate) fn new(cluster: &'a Arc<Cluster>, metrics: &'a Metrics) -> Self {
        Self {
            cluster,
            metrics,
            queues: Vec::new(),
            loops: Vec::new(),
        }
    }

    /// Puts a controller into the list, made with its queue, and returns it; one that is not wanted (`None`) is left out.
    pub(crate) fn add<M: Made>(&mut self, make: impl FnOnce(WorkQueue<KeyOf<M>>) -> M) -> M {
        let name = M::Controller::NAME;
        let (base, max) = M::Controller::RETRY;
        let options = QueueOptions {
            rate_limit: RateLimit {
                base,
                max,
                bucket: M::Controller::retry_bucket(&self.cluster.options),
            },
        };
        let queue = WorkQueue::new(name, self.cluster.clock.clone(), options, self.metrics);
        let made = make(queue.clone());
        let Some(controller) = made.wanted() else {
            return made;
        };
        controller.subscribe(&mut Triggers {
            cluster: self.cluster,
            queue: queue.clone(),
            loops: &mut self.loops,
        });
        let workers = M::Controller::workers(&self.cluster.options);
        let serve: Serve = Box::new(move |shutdown, metrics| {
            let reconcile = move |key| controller.clone().reconcile(key);
            async move { run_controller(name, queue, workers, reconcile, shutdown, metrics).await }.boxed()
        });
        self.queues.push((name, serve));
        made
    }

    /// Puts work without keys into the list.
    pub(crate) fn add_loop<Work: Future<Output = ()> + Send + 'static>(
        &mut self,
        name: &'static str,
        run: impl FnOnce(Shutdown) -> Work + Send + 'static,
    ) {
        self.loops.push(Loop {
            name,
            run: Box::new(move |shutdown| run(shutdown).boxed()),
        });
    }

    /// Starts all of them: queues first, then loops, each in the order of the list.
    pub(crate) fn start(self, tasks: &mut TaskGroup, shutdown: &Shutdown) {
        let metrics = ControllerMetrics::new(self.metrics);
        for (name, serve) in self.queues {
            tasks.spawn(name, serve(shutdown.clone(), metrics.clone()));
        }
        for one in self.loops {
            tasks.spawn(one.name, (one.run)(shutdown.clone()));
        }
    }
}
