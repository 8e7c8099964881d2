//! How a list of stores is written, and what follows from it: the struct, its watches, readiness, versions and what cannot be read.

use kube::Resource;
use spokeshave_ports::{Entropy, SharedClock};
use spokeshave_runtime::{
    Metrics, Object, ObjectKey, Reflector, Shutdown, Store, StoreOptions, TaskGroup, WatchOptions,
};

use crate::options::Options;

/// How often stores have changed, by how a Snapshot follows their changes.
///
/// Every store only ever counts upwards, so equal sums mean that none of them has changed. All roles but `others` and `apart` name stores whose changes
/// `state::changes` takes in one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Versions {
    pub(crate) pods: u64,
    pub(crate) nodes: u64,
    /// Disruption writes its verdicts to NodeClaims, which no decision reads.
    pub(crate) node_claims: u64,
    pub(crate) node_pools: u64,
    pub(crate) budgets: u64,
    pub(crate) csi_nodes: u64,
    pub(crate) policies: u64,
    pub(crate) disruptions: u64,
    /// What owners of pods ask for.
    pub(crate) owners: u64,
    /// Everything else that a Snapshot is made of, virtual pods included: any change of it means that everything is lowered again.
    pub(crate) others: u64,
    /// Stores that no Snapshot is made of, or only through something that is compared by itself: NodeOverlays through instance types, CapacityBuffers
    /// through their virtual pods.
    pub(crate) apart: u64,
}

impl Versions {
    /// The same in all that a Snapshot is made of.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let apart = 0;
        Self { apart, ..*self } == Self { apart, ..*other }
    }
}

/// An object of the API server that cannot be read: its kind, its key and why.
pub(crate) type Rejected = (String, ObjectKey, String);

/// Makes a struct of stores from one line per stored kind:
///
/// ```text
/// name: Kind, when it is watched (a field of `Wanted`), what its changes mean (a field of `Versions`), how a new store treats objects;
/// ```
///
/// Struct, creation, watches, readiness, versions and what cannot be read follow from the line. A kind with the role `others` needs no second line for a
/// Snapshot to be made again when it changes. Indexes find objects by something other than their name; groups are stores that are kept together in a struct of their own.
macro_rules! stores {
    (
        $(#[$outer:meta])*
        $visibility:vis struct $name:ident {
            $($(#[$doc:meta])* $field_visibility:vis $field:ident: $kind:ty, $when:ident, $role:ident, $options:expr;)*
        }
        indexes {
            $($(#[$index_doc:meta])* $index_visibility:vis $index:ident: $indexed:ty, $store:ident, $keys:expr;)*
        }
        groups {
            $($(#[$group_doc:meta])* $group_visibility:vis $group:ident: $group_type:ty;)*
        }
    ) => {
        $(#[$outer])*
        #[derive(Clone, Debug)]
        #[allow(missing_docs, reason = "each is named after what it holds")]
        $visibility struct $name {
            $($(#[$doc])* $field_visibility $field: spokeshave_runtime::Store<$kind>,)*
            $($(#[$index_doc])* $index_visibility $index: spokeshave_runtime::Index<$indexed>,)*
            $($(#[$group_doc])* $group_visibility $group: $group_type,)*
        }

        impl $name {
            /// Empty stores. Limits of containers are kept only for the metrics of single objects.
            pub(crate) fn new(object_metrics: bool) -> Self {
                $(let $field: spokeshave_runtime::Store<$kind> = spokeshave_runtime::Store::new(($options)(object_metrics));)*
                Self {
                    $($index: $store.index($keys),)*
                    $($field,)*
                    $($group: <$group_type>::new(object_metrics),)*
                }
            }

            /// Starts the watches that are wanted.
            pub(crate) fn start(&self, wanted: $crate::state::store_list::Wanted, starter: &mut $crate::state::store_list::Starter<'_>) {
                $(if wanted.$when {
                    starter.start(&self.$field);
                })*
                $(self.$group.start(wanted, starter);)*
            }

            /// Completes when every store that is watched has been filled once.
            pub(crate) async fn ready(&self, wanted: $crate::state::store_list::Wanted) {
                $(if wanted.$when {
                    self.$field.ready().await;
                })*
                $(self.$group.ready(wanted).await;)*
            }

            /// Adds how often its stores have changed.
            pub(crate) fn count(&self, versions: &mut $crate::state::store_list::Versions) {
                $(versions.$role += self.$field.changes();)*
                $(self.$group.count(versions);)*
            }

            /// Adds what the API server has of each kind and this version cannot read.
            pub(crate) fn add_rejected(&self, all: &mut std::collections::BTreeSet<$crate::state::store_list::Rejected>) {
                $(for (key, why) in self.$field.rejected() {
                    all.insert((<$kind as kube::Resource>::kind(&()).into_owned(), key, why));
                })*
                $(self.$group.add_rejected(all);)*
            }

            /// Every store, by its struct and name, and what its changes mean.
            #[cfg(test)]
            pub(crate) fn roles() -> Vec<(&'static str, &'static str)> {
                [$((concat!(stringify!($name), ".", stringify!($field)), stringify!($role))),*]
                    .into_iter()
                    $(.chain(<$group_type>::roles()))*
                    .collect()
            }

            /// Names of the stores that are watched but were not filled yet.
            pub(crate) fn unfilled(&self, wanted: $crate::state::store_list::Wanted) -> Vec<&'static str> {
                let mut unfilled = Vec::new();
                $(if wanted.$when && !self.$field.is_ready() {
                    unfilled.push(stringify!($field));
                })*
                $(unfilled.extend(self.$group.unfilled(wanted));)*
                unfilled
            }
        }
    };
}
pub(crate) use stores;

/// Keeps all but `managedFields`.
pub(crate) fn plain<K: Resource + PartialEq>(_: bool) -> StoreOptions<K> {
    StoreOptions::default()
}

/// What is watched only where it is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// What every operator needs: true.
    pub(crate) always: bool,
    /// Our own kinds: true, but for a shadow beside an operator that does not have them.
    pub(crate) own_kinds: bool,
    /// What default topology spread reads.
    pub(crate) spread: bool,
    /// ResourceSlices.
    pub(crate) dynamic_resources: bool,
    /// NodeOverlays.
    pub(crate) node_overlays: bool,
    /// What waits until some object asks for it: false.
    pub(crate) on_demand: bool,
    /// CapacityBuffers, PodTemplates and the workloads that buffers may name.
    pub(crate) capacity_buffers: bool,
}

impl Wanted {
    pub(crate) fn of(options: &Options) -> Self {
        Self {
            always: true,
            own_kinds: true,
            on_demand: false,
            spread: options.scheduler_profiles.have_default_constraints(),
            dynamic_resources: options.dynamic_resources,
            node_overlays: options.feature_gates.node_overlay,
            capacity_buffers: options.feature_gates.capacity_buffer,
        }
    }
}

/// Starts watches.
pub(crate) struct Starter<'a> {
    pub(crate) client: &'a kube::Client,
    pub(crate) clock: &'a SharedClock,
    pub(crate) entropy: &'a Entropy,
    pub(crate) metrics: &'a Metrics,
    pub(crate) tasks: &'a mut TaskGroup,
    pub(crate) shutdown: &'a Shutdown,
}

impl Starter<'_> {
    pub(crate) fn start<K: Object>(&mut self, store: &Store<K>) {
        let kind = K::kind(&()).into_owned();
        let entropy = self.entropy.child(&kind);
        let reflector = Reflector::new(
            self.client.clone(),
            store,
            &WatchOptions::default(),
            self.clock.clone(),
            &entropy,
            self.metrics,
        );
        let shutdown = self.shutdown.clone();
        self.tasks.spawn(
            format!("watch {kind}"),
            async move { reflector.run(shutdown).await },
        );
    }

    /// Starts a watch once some object of another store asks for it. It goes on when none does any more.
    pub(crate) fn start_when<K: Object, A: Object>(
        &mut self,
        store: &Store<K>,
        asking: &Store<A>,
        asks: fn(&A) -> bool,
    ) {
        let kind = K::kind(&()).into_owned();
        let entropy = self.entropy.child(&format!("{kind} on demand"));
        let reflector = Reflector::new(
            self.client.clone(),
            store,
            &WatchOptions::default(),
            self.clock.clone(),
            &entropy,
            self.metrics,
        );
        let (shutdown, asking) = (self.shutdown.clone(), asking.clone());
        self.tasks.spawn(format!("watch {kind} on demand"), async move {
            let mut changes = asking.subscribe();
            loop {
                let mut is_asked = false;
                asking.for_each(|_, object| is_asked |= asks(object));
                if is_asked {
                    break;
                }
                if shutdown.cut(changes.next()).await.flatten().is_none() {
                    return;
                }
            }
            drop(changes);
            reflector.run(shutdown).await;
        });
    }
}
