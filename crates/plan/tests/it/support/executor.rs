//! A cluster in which commands are carried out at once, until nothing moves.

use crate::support;
use serde_json::json;
use spokeshave_example::{bound, node, pending_pod};
use spokeshave_model::placement::PlannedClaim;
use spokeshave_model::snapshot::{PodId, Snapshot};
use spokeshave_model::{ClusterState, lower};
use spokeshave_plan::disrupt::{Command, Destination, Frontier, disrupt};
use spokeshave_plan::{Policy, provision};
use std::sync::Arc;

/// A cluster in which commands are carried out at once.
pub(crate) struct Executor {
    pub(crate) state: ClusterState,
    pub(crate) types: Vec<spokeshave_model::InstanceType>,
    pub(crate) scatter: bool,
    pub(crate) born: usize,
}

impl Executor {
    pub(crate) fn launch(&mut self, snapshot: &Snapshot, claim: &PlannedClaim) -> String {
        let launch = &claim.launches[0];
        let pool = &snapshot.pool(claim.pool);
        let instance_type = pool.instance_types[launch.instance_type].clone();
        let name = format!("born-{:03}", self.born);
        self.born += 1;
        let kind = launch.capacity_type.map_or("on-demand", |kind| kind.as_str());
        let zone = launch.zone.clone().unwrap_or_else(|| "a".to_owned());
        self.state =
            std::mem::take(&mut self.state).with_node(node(&pool.name, &name, &instance_type, &zone, kind));
        name
    }

    pub(crate) fn bind(&mut self, pod: &str, to: &str) {
        for object in &mut self.state.pods {
            if spokeshave_model::pod::key(object) == pod {
                *object = Arc::new(bound((**object).clone(), to));
            }
        }
    }

    /// Deletes the nodes of a command and puts their pods where the plan, or a scheduler that likes empty nodes, has them.
    pub(crate) fn carry_out(&mut self, snapshot: &Snapshot, command: &Command) {
        let born: Vec<String> = command
            .replacements
            .iter()
            .map(|replacement| self.launch(snapshot, &replacement.claim))
            .collect();
        let gone: Vec<&str> = command.nodes.iter().map(|node| node.node.as_str()).collect();
        self.state
            .nodes
            .retain(|node| !gone.contains(&node.metadata.name.as_deref().unwrap_or("")));
        self.state
            .node_claims
            .retain(|claim| command.nodes.iter().all(|node| node.node_claim != claim.name()));
        let mut homeless = Vec::new();
        for step in command.moves.iter() {
            if self.scatter {
                homeless.push(step.pod.clone());
            } else {
                match &step.to {
                    Destination::Node { name, .. } => self.bind(&step.pod, name),
                    Destination::Replacement(index) => self.bind(&step.pod, &born[*index]),
                }
            }
        }
        // Small pods first and onto the emptiest node: the opposite of what the plan had in mind.
        homeless.sort_by_key(|pod| self.request(pod));
        for pod in homeless {
            self.unbind(&pod);
            if let Some(place) = self.emptiest(&pod) {
                self.bind(&pod, &place);
            }
        }
        self.provision();
    }

    pub(crate) fn request(&self, key: &str) -> i64 {
        let pod = self
            .state
            .pods
            .iter()
            .find(|pod| spokeshave_model::pod::key(pod) == key);
        pod.map_or(0, |pod| spokeshave_model::pod::requests(pod).get("cpu"))
    }

    pub(crate) fn unbind(&mut self, key: &str) {
        for object in &mut self.state.pods {
            if spokeshave_model::pod::key(object) == key {
                let mut pod = (**object).clone();
                let pending = pending_pod("x", "1", "1Mi", &json!({}));
                pod.status = pending.status;
                pod.node_name = None;
                *object = Arc::new(pod);
            }
        }
    }

    pub(crate) fn emptiest(&self, key: &str) -> Option<String> {
        let snapshot = lower(&self.state);
        let pod = snapshot.pod_ids().find(|pod| snapshot.pod(*pod).key() == key)?;
        let request = snapshot.requests(pod);
        let fitting = snapshot.nodes.iter().filter_map(|view| {
            let mut free = view.allocatable.clone();
            free.subtract(&view.requested);
            request
                .fits(&free)
                .then(|| (free[0] * 1000 / view.allocatable[0].max(1), view.name.clone()))
        });
        fitting.max().map(|(_, name)| name)
    }

    pub(crate) fn provision(&mut self) {
        let snapshot = lower(&self.state);
        let outcome = provision(&snapshot, &Policy::default(), support::later(0));
        let key = |pod: &PodId| snapshot.pod(*pod).key();
        for (place, pods) in &outcome.placements.existing {
            let name = snapshot.node(*place).name.clone();
            pods.iter().for_each(|pod| self.bind(&key(pod), &name));
        }
        for claim in &outcome.placements.claims {
            let name = self.launch(&snapshot, claim);
            claim.pods.iter().for_each(|pod| self.bind(&key(pod), &name));
        }
    }

    /// Passes until nothing is left to do; how many commands that took.
    pub(crate) fn settle(&mut self, seed: u64) -> usize {
        let policy = Policy::default();
        let mut frontier = Frontier::default();
        let (mut commands, mut quiet) = (0, 0);
        let bound = 30 * self.state.nodes.len() + 30;
        while quiet < 6 {
            let snapshot = lower(&self.state);
            let outcome = disrupt(&snapshot, &policy, support::later(0), &frontier);
            frontier = outcome.frontier;
            if outcome.commands.is_empty() {
                quiet += 1;
                continue;
            }
            quiet = 0;
            for command in &outcome.commands {
                commands += 1;
                self.carry_out(&snapshot, command);
            }
            assert!(
                commands <= bound,
                "seed {seed}, scatter {}: {commands} commands and no end: {:?} {frontier:?}",
                self.scatter,
                outcome.commands.iter().map(support::text).collect::<Vec<_>>()
            );
        }
        commands
    }
}
