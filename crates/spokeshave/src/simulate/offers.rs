//! What the NodePools of a policy can launch: its patches and manifests may refer to other NodeClasses than the cluster's.
//!
//! Owns which parts of a dump instance types depend on. How a class changes a type is the business of the module `plan`.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use spokeshave_api::conditions::Conditioned as _;
use spokeshave_api::{NodeClaim, NodeClassRef, NodeOverlay, NodePool};
use spokeshave_model::InstanceType;

use crate::plan::dump::Dump;
use crate::plan::ec2::Ec2;
use crate::plan::object::NodeClass;
use crate::plan::world::{Origin, World as Read};

/// What instance types depend on besides NodePools.
pub(crate) struct Shop<'a> {
    origin: Origin,
    catalog: &'a Arc<[InstanceType]>,
    ec2: Option<&'a Ec2>,
    classes: Vec<NodeClass>,
    overlays: Vec<Arc<NodeOverlay>>,
    /// They say which region it is.
    nodes: Vec<Arc<Node>>,
    /// They say which Nodes go.
    node_claims: Vec<Arc<NodeClaim>>,
    /// What was offered before: policies that differ in other things share the lists, which are large.
    known: Vec<Known>,
    /// What had to be assumed, each sentence once.
    notes: Vec<String>,
}

/// What the NodePools of a policy are offered.
struct Known {
    pools: Vec<Arc<NodePool>>,
    offers: Offers,
}

/// Instance types by NodePool.
type Offers = BTreeMap<String, Arc<[InstanceType]>>;

/// Whether instance types and notes are the same for both.
fn is_alike(one: &NodePool, other: &NodePool) -> bool {
    one.name() == other.name()
        && one.spec.template == other.spec.template
        && one.is_true("Ready") == other.is_true("Ready")
}

impl<'a> Shop<'a> {
    /// What the cluster of a scenario sells.
    pub(crate) fn of(
        dump: &Dump,
        origin: Origin,
        catalog: &'a Arc<[InstanceType]>,
        ec2: Option<&'a Ec2>,
    ) -> Self {
        Shop {
            origin,
            catalog,
            ec2,
            classes: dump.node_classes.clone(),
            overlays: dump.node_overlays.clone(),
            nodes: dump.nodes.clone(),
            node_claims: dump.node_claims.clone(),
            known: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// The instance types of each of these NodePools. Conflicts of overlays depend on all of them.
    ///
    /// # Errors
    /// One that would launch refers to a NodeClass that is not there: this one.
    pub(crate) fn offers(
        &mut self,
        pools: &[Arc<NodePool>],
        now: Timestamp,
    ) -> Result<Offers, Arc<NodePool>> {
        let mut known = self.known.iter();
        let known = known.find(|known| {
            let mut pairs = known.pools.iter().zip(pools);
            known.pools.len() == pools.len() && pairs.all(|(one, other)| is_alike(one, other))
        });
        if let Some(known) = known {
            return Ok(known.offers.clone());
        }
        let dump = Dump {
            node_pools: pools.to_vec(),
            node_classes: self.classes.clone(),
            node_overlays: self.overlays.clone(),
            nodes: self.nodes.clone(),
            node_claims: self.node_claims.clone(),
            ..Dump::default()
        };
        let read = Read::new(dump, self.origin, self.catalog, self.ec2, Arc::default(), now);
        let mut found = read.state.instance_types;
        let mut offers = Offers::new();
        for pool in pools {
            match found.remove(pool.name()) {
                Some(Ok(types)) => {
                    offers.insert(pool.name().to_owned(), types);
                }
                Some(Err(_)) if pool.is_true("Ready") => return Err(Arc::clone(pool)),
                // It launches nothing.
                Some(Err(_)) | None => {}
            }
        }
        let unready: Vec<String> = pools.iter().filter_map(|pool| self.unready(pool)).collect();
        for note in read.notes.into_iter().chain(unready) {
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
        self.known.push(Known {
            pools: pools.to_vec(),
            offers: offers.clone(),
        });
        Ok(offers)
    }

    /// What was assumed of the NodePools that were asked for.
    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Of a NodePool that launches although the dump says that its NodeClass is not ready.
    fn unready(&self, pool: &NodePool) -> Option<String> {
        let class = pool.node_class_ref();
        let mut classes = self.classes.iter();
        let named = classes.find(|known| {
            known.group == class.group && known.kind == class.kind && known.name == class.name
        })?;
        let is_unready = pool.is_true("Ready") && named.ready == Some(false);
        is_unready.then(|| {
            format!(
                "NodePool {} refers to {} {:?}, which is not ready: taken as ready",
                pool.name(),
                class.kind,
                class.name
            )
        })
    }

    /// Names of the NodeClasses of a kind.
    pub(crate) fn classes_like(&self, class: &NodeClassRef) -> Vec<String> {
        let classes = self.classes.iter();
        let of_kind = classes.filter(|known| known.group == class.group && known.kind == class.kind);
        of_kind.map(|known| format!("{:?}", known.name)).collect()
    }
}
