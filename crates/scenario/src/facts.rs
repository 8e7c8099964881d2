//! Summary of a timeline without simulating it: pods per day, the peak of pods and cores, events.
//!
//! Owns counting. It assumes that each pod starts at once and that nothing is evicted, so a run has these figures unless pods have to wait.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use k8s_openapi::api::core::v1::PodTemplateSpec;
use spokeshave_model::pod::requests_of_template;
use spokeshave_model::resources::ResourceName;

use crate::pods::GPU;
use crate::timeline::{Change, Owner, OwnerId, OwnerKind, Timeline};

/// The figures of a timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Facts {
    /// Workloads.
    pub owners: u64,
    /// Events.
    pub events: u64,
    /// Pods that are created, without the initial ones.
    pub births: u64,
    /// Initial pods.
    pub at_start: u64,
    /// Largest number of pods at once.
    pub peak_pods: u64,
    /// Largest sum of CPU requests at once, in thousandths of a core.
    pub peak_cpu_milli: u64,
    /// Largest sum of memory requests at once, in bytes.
    pub peak_memory_bytes: u64,
    /// Largest number of GPUs at once.
    pub peak_gpus: u64,
    /// Milliseconds from the start to the last event.
    pub span_ms: u64,
}

/// What one pod asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Request {
    cpu_milli: u64,
    memory_bytes: u64,
    gpus: u64,
}

impl Facts {
    /// Counts.
    #[must_use]
    pub fn of(timeline: &Timeline) -> Self {
        let mut count = Count {
            facts: Facts {
                owners: timeline.owners.len() as u64,
                events: timeline.events.len() as u64,
                span_ms: timeline.events.last().map_or(0, |event| event.at_ms),
                ..Facts::default()
            },
            requests: timeline.owners.iter().map(requests).collect(),
            templates: vec![0; timeline.owners.len()],
            replicas: vec![0; timeline.owners.len()],
            ends: BinaryHeap::new(),
            alive: BTreeMap::new(),
            now: Request::default(),
            pods: 0,
        };
        for (index, event) in timeline.events.iter().enumerate() {
            count.end_until(event.at_ms);
            count.apply(timeline, event.at_ms, event.owner, &event.change);
            // Within one timestamp only the final state counts.
            if timeline
                .events
                .get(index + 1)
                .is_none_or(|next| next.at_ms > event.at_ms)
            {
                count.note_peaks();
            }
        }
        count.facts
    }

    /// Births a day, over a duration in milliseconds.
    #[must_use]
    pub fn births_per_day(&self, duration_ms: u64) -> f64 {
        self.births as f64 * 86_400_000.0 / duration_ms.max(1) as f64
    }
}

struct Count {
    facts: Facts,
    /// By owner and template.
    requests: Vec<Vec<Request>>,
    /// From which template the pods of each owner are made now.
    templates: Vec<usize>,
    replicas: Vec<u64>,
    /// When pods end by themselves.
    ends: BinaryHeap<Reverse<(u64, u32, u64)>>,
    /// Running single pods: when they end (`None`: when they are deleted), and what they ask for.
    alive: BTreeMap<(u32, u64), (Option<u64>, Request)>,
    now: Request,
    pods: u64,
}

impl Count {
    fn end_until(&mut self, at_ms: u64) {
        while let Some(Reverse((end, owner, pod))) = self.ends.peek().copied() {
            if end > at_ms {
                break;
            }
            self.ends.pop();
            if let Some((Some(known), request)) = self.alive.get(&(owner, pod)).copied()
                && known == end
            {
                self.alive.remove(&(owner, pod));
                self.change(request, 0, 1);
            }
        }
    }

    fn apply(&mut self, timeline: &Timeline, at_ms: u64, owner: OwnerId, change: &Change) {
        let index = owner.0 as usize;
        let Some(definition) = timeline.owners.get(index) else {
            return;
        };
        match change {
            Change::Replicas(wanted) => {
                let (before, wanted) = (self.replicas[index], u64::from(*wanted));
                self.replicas[index] = wanted;
                self.born(at_ms, wanted.saturating_sub(before));
                let request = self.request(index);
                self.change(request, wanted, before);
            }
            Change::Template(template) => self.replace(at_ms, index, *template as usize),
            Change::Begin { pod, runs_ms } => {
                // A pod exists until it is ready, and then for its run time.
                let ready = definition.ready.median_ms;
                let end = runs_ms.map(|runs| at_ms.saturating_add(ready).saturating_add(runs));
                if let Some((known, _)) = self.alive.get_mut(&(owner.0, *pod)) {
                    *known = end;
                } else {
                    let request = self.request(index);
                    self.alive.insert((owner.0, *pod), (end, request));
                    self.born(at_ms, 1);
                    self.change(request, 1, 0);
                }
                if let Some(end) = end {
                    self.ends.push(Reverse((end, owner.0, *pod)));
                }
            }
            Change::End { pod } => {
                if let Some((_, request)) = self.alive.remove(&(owner.0, *pod)) {
                    self.change(request, 0, 1);
                }
            }
        }
    }

    fn born(&mut self, at_ms: u64, count: u64) {
        match at_ms {
            0 => self.facts.at_start += count,
            _ => self.facts.births += count,
        }
    }

    /// What a pod asks for that an owner makes now.
    fn request(&self, owner: usize) -> Request {
        self.requests[owner][self.templates[owner]]
    }

    /// All pods of a Deployment or StatefulSet are made anew; single ones stay what they are.
    fn replace(&mut self, at_ms: u64, owner: usize, template: usize) {
        if template >= self.requests[owner].len() || template == self.templates[owner] {
            return;
        }
        let (before, pods) = (self.request(owner), self.replicas[owner]);
        self.templates[owner] = template;
        self.born(at_ms, pods);
        self.change(before, 0, pods);
        self.change(self.request(owner), pods, 0);
    }

    fn change(&mut self, request: Request, more: u64, less: u64) {
        let step = |sum: u64, each: u64| {
            let up = sum.saturating_add(each.saturating_mul(more));
            up.saturating_sub(each.saturating_mul(less))
        };
        self.pods = step(self.pods, 1);
        self.now = Request {
            cpu_milli: step(self.now.cpu_milli, request.cpu_milli),
            memory_bytes: step(self.now.memory_bytes, request.memory_bytes),
            gpus: step(self.now.gpus, request.gpus),
        };
    }

    fn note_peaks(&mut self) {
        let facts = &mut self.facts;
        facts.peak_pods = facts.peak_pods.max(self.pods);
        facts.peak_cpu_milli = facts.peak_cpu_milli.max(self.now.cpu_milli);
        facts.peak_memory_bytes = facts.peak_memory_bytes.max(self.now.memory_bytes);
        facts.peak_gpus = facts.peak_gpus.max(self.now.gpus);
    }
}

/// What a pod of an owner asks for, by template.
fn requests(owner: &Owner) -> Vec<Request> {
    owner.templates().map(|template| request(template)).collect()
}

fn request(template: &PodTemplateSpec) -> Request {
    let Some(spec) = &template.spec else {
        return Request::default();
    };
    // As the scheduler counts: init containers by their peak, side-cars and overhead besides.
    let all = requests_of_template(spec);
    let amount = |name: &str| u64::try_from(all.get(name)).unwrap_or(0);
    Request {
        cpu_milli: amount(ResourceName::CPU),
        memory_bytes: amount(ResourceName::MEMORY),
        gpus: amount(GPU),
    }
}

impl Timeline {
    /// Adds another timeline's owners, budgets, events and placements; call [`Timeline::sort`] afterwards. Of two budgets with one name, which are one in a cluster,
    /// the one that is here counts.
    pub fn append(&mut self, other: Timeline) {
        let offset = u32::try_from(self.owners.len()).unwrap_or(u32::MAX);
        self.owners.extend(other.owners);
        for (name, budget) in other.budgets {
            self.budgets.entry(name).or_insert(budget);
        }
        let moved = other.events.into_iter().map(|mut event| {
            event.owner = OwnerId(event.owner.0.saturating_add(offset));
            event
        });
        self.events.extend(moved);
        let moved = other.placements.into_iter().map(|mut placement| {
            placement.owner = OwnerId(placement.owner.0.saturating_add(offset));
            placement
        });
        self.placements.extend(moved);
    }

    /// Puts events into the order of time; those of one instant stay in the order in which they were added.
    pub fn sort(&mut self) {
        self.events.sort_by_key(|event| event.at_ms);
    }

    /// Leaves out what happens at or after an instant.
    pub fn cut(&mut self, duration_ms: u64) {
        self.events.retain(|event| event.at_ms < duration_ms);
    }

    /// Owners of each kind.
    #[must_use]
    pub fn owners_of(&self, kind: OwnerKind) -> usize {
        self.owners.iter().filter(|owner| owner.kind == kind).count()
    }
}
