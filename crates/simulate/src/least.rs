//! The lower bound during a run: which offerings the NodePools allow, and the requests of bound pods.
//!
//! Owns the sum of the demand, and what of it nodes can take that are there anyway. The bound itself is [`crate::bound`]'s.

use spokeshave_api::NodePool;
use spokeshave_model::constraints::{Constraints, NamespaceLabels, lower};
use spokeshave_model::{InstanceType, Pod, Requirements, Resources, labels, pod, taint};

use spokeshave_scenario::Timeline;

use crate::bound::{Bound, Demand, Load};
use crate::owners::OwnerState;
use crate::shapes::{DaemonState, samples};
use crate::world::{Policy, World};

/// The bound of a run.
#[derive(Debug)]
pub struct Least {
    bound: Bound,
    demand: Demand,
    /// What Nodes of no NodePool can take, which nothing has to be bought for; `None` where there are none.
    free: Option<Demand>,
    /// By owner and template.
    loads: Vec<Vec<Load>>,
}

impl Least {
    /// The bound of a run.
    pub fn of(world: &World, timeline: &Timeline, policy: &Policy) -> Self {
        let mut owners: Vec<OwnerState> = (0..)
            .zip(&timeline.owners)
            .map(|(index, owner)| OwnerState::new(owner, index))
            .collect();
        let daemons: Vec<DaemonState> = world
            .daemon_sets
            .iter()
            .map(|daemon_set| DaemonState::new(daemon_set))
            .collect();
        let samples = samples(&mut owners, &daemons, world.start);
        let pools = policy.node_pools.iter().map(|pool| {
            let name = pool.metadata.name.as_deref().unwrap_or_default();
            (&**pool, &policy.types_of(world, name)[..])
        });
        let of_daemons = &samples[owners.len()..owners.len() + daemons.len()];
        let mut least = Least::new(pools, &owners, &samples, of_daemons);
        for node in &world.standing.fixed {
            let status = node.status.as_ref();
            let allocatable = status.and_then(|status| status.allocatable.as_ref());
            let room = least.bound.room(&Resources::from_quantities_lossy(allocatable));
            least.free.get_or_insert_with(|| least.bound.nothing()).add(&room);
        }
        least
    }

    /// `samples` are pods of each template of each owner, and `daemons` of each DaemonSet.
    fn new<'a>(
        pools: impl Iterator<Item = (&'a NodePool, &'a [InstanceType])>,
        owners: &[OwnerState],
        samples: &[Pod],
        daemons: &[Pod],
    ) -> Self {
        let pools: Vec<(&NodePool, &[InstanceType])> = pools.collect();
        let types: Vec<InstanceType> = pools
            .iter()
            .flat_map(|(pool, types)| for_sale(pool, types))
            .collect();
        let everywhere = daemons.iter().filter(|daemon| runs_everywhere(daemon, &pools));
        let mut least = Resources::new();
        everywhere.for_each(|daemon| least.add(&pod::requests(daemon)));
        let bound = Bound::of(&types, |_| least.clone());
        let load = |sample: &Pod| {
            let constraints = lower(sample, &NamespaceLabels::new());
            bound.load(&pod::requests(sample), never_spot(&constraints))
        };
        let loads = |owner: &OwnerState| -> Vec<Load> {
            let templates = owner.templates.iter();
            templates.map(|template| load(&samples[template.shape])).collect()
        };
        Least {
            demand: bound.nothing(),
            free: None,
            loads: owners.iter().map(loads).collect(),
            bound,
        }
    }

    /// A pod of an owner that was made from this of its templates is bound. Returns the bound, in micro-dollars per hour.
    pub fn add(&mut self, owner: u32, template: u32) -> u64 {
        self.demand.add(&self.loads[owner as usize][template as usize]);
        self.price()
    }

    /// The same pod has left its node. Returns the bound, in micro-dollars per hour.
    pub fn remove(&mut self, owner: u32, template: u32) -> u64 {
        self.demand.remove(&self.loads[owner as usize][template as usize]);
        self.price()
    }

    fn price(&self) -> u64 {
        match &self.free {
            Some(free) => self.bound.at(&self.demand.beyond(free)),
            None => self.bound.at(&self.demand),
        }
    }
}

/// What a NodePool can launch; a requirement that cannot be read leaves everything.
fn for_sale(pool: &NodePool, types: &[InstanceType]) -> Vec<InstanceType> {
    let wanted = Requirements::from_api(&pool.spec.template.spec.requirements).unwrap_or_default();
    let kept = types
        .iter()
        .filter(|one| one.requirements.intersects(&wanted).is_ok());
    let offered = kept.map(|one| {
        let mut one = one.clone();
        one.offerings
            .retain(|offering| offering.requirements.intersects(&wanted).is_ok());
        one
    });
    offered.filter(|one| !one.offerings.is_empty()).collect()
}

/// A DaemonSet whose pods every node of every NodePool carries; others are left out, which keeps the bound a bound.
fn runs_everywhere(daemon: &Pod, pools: &[(&NodePool, &[InstanceType])]) -> bool {
    let constraints = lower(daemon, &NamespaceLabels::new());
    let tolerates = |pool: &NodePool| {
        let taints = &pool.spec.template.spec.taints;
        taint::first_untolerated(taints, &constraints.tolerations).is_none()
    };
    constraints.node_selector.is_empty()
        && constraints.required_terms.is_empty()
        && pools.iter().all(|(pool, _)| tolerates(pool))
}

/// Its own constraints keep the pod from spot capacity.
fn never_spot(constraints: &Constraints) -> bool {
    let excludes = |set: &Requirements| {
        set.find(labels::CAPACITY_TYPE)
            .is_some_and(|wanted| !wanted.has("spot"))
    };
    let terms = &constraints.required_terms;
    excludes(&constraints.node_selector) || (!terms.is_empty() && terms.iter().all(excludes))
}
