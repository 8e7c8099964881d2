//! Pods of a [`LiveSnapshot`]: where each stands, its class and requests, and the node it is on.

use super::super::intern::{Place, pod_view, put_on, selecting};
use super::super::pods::{LoweredPod, is_replica, problem, read};
use super::numbering::Shift;
use super::{LiveSnapshot, Shapes, daemon_owners};
use crate::Pod;
use crate::constraints::Constraints;
use crate::pod;
use crate::pod_object::{PodKey, pod_key};
use crate::resources::Resources;
use crate::snapshot::{ClassId, NodeId, PodId, PodView, RequestId};
use crate::vector::ResourceVector;
use crate::volumes;
use jiff::Timestamp;
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::cmp::Reverse;
use std::sync::Arc;

impl LiveSnapshot {
    /// Counts how many pods have each shape.
    pub(super) fn index_shapes(&mut self) {
        for shape in &self.shape_of {
            self.shapes.list[*shape as usize].1 += 1;
        }
    }

    /// The indexes of pods, from scratch.
    pub(super) fn index_pods(&mut self, pods: &[LoweredPod], requests: &[Resources]) {
        let snapshot = Arc::clone(&self.snapshot);
        for (view, pod) in snapshot.pods.iter().zip(pods) {
            self.name(&requests[pod.requests]);
            if view.node.is_none() {
                self.wait(&view.object);
            }
            self.note_daemon(&view.object);
        }
        self.daemons_changed.clear();
        let daemons = std::mem::take(&mut self.daemons);
        daemons.iter().for_each(|daemon| self.name(&daemon.2));
        self.daemons = daemons;
    }

    /// Where the pod of a name stands, or would stand.
    pub(super) fn find_pod(&self, namespace: &str, name: &str) -> Result<usize, usize> {
        let key = |view: &PodView| {
            let meta = &view.object.metadata;
            let namespaces = meta.namespace.as_deref().unwrap_or("").cmp(namespace);
            namespaces.then_with(|| meta.name.as_deref().unwrap_or("").cmp(name))
        };
        self.snapshot.pods.binary_search_by(key)
    }

    pub(super) fn set_pod(&mut self, object: Arc<Pod>) {
        let (namespace, name) = super::meta_key(&object.metadata);
        let at = match self.find_pod(namespace, name) {
            Ok(at) => at,
            Err(at) => return self.insert_pod(at, object),
        };
        let known = &self.snapshot.pods[at];
        if known.is_virtual == pod::is_virtual(&object) {
            self.exchange_pod(at, object);
        } else if known.is_virtual {
            let hidden = Arc::clone(&known.object);
            self.hidden.insert(pod_key(&hidden), hidden);
            self.exchange_pod(at, object);
        } else {
            self.hidden.insert(pod_key(&object), object);
        }
    }

    pub(super) fn remove_pod(&mut self, key: PodKey, is_virtual: bool) {
        let Ok(at) = self.find_pod(&key.0, &key.1) else {
            return;
        };
        if self.snapshot.pods[at].is_virtual != is_virtual {
            self.hidden.remove(&key);
        } else if let Some(object) = self.hidden.remove(&key) {
            self.exchange_pod(at, object);
        } else {
            self.take_pod(at);
        }
    }

    fn insert_pod(&mut self, at: usize, object: Arc<Pod>) {
        self.around.add_user(&object);
        let (constraints, asked) = self.read(&object);
        let (class, shape) = self.class_of(at, constraints, Shift::Moves);
        let request = self.request_of(at, &asked, Shift::Moves);
        let view = self.view_of(&object, class, request);
        self.shape_of.insert(at, shape);
        let snapshot = Arc::make_mut(&mut self.snapshot);
        snapshot.pods.insert(at, view);
        for node in &mut snapshot.nodes {
            let pods = node.pods.iter_mut().rev();
            pods.take_while(|pod| pod.index() >= at)
                .for_each(|pod| pod.0 += 1);
        }
        self.bind(at);
        self.note_daemon(&object);
        self.renew_problems_beside(&object);
    }

    fn take_pod(&mut self, at: usize) {
        self.unbind(at);
        let object = Arc::clone(&self.snapshot.pods[at].object);
        self.around.remove_user(&object);
        self.forget_daemon(&object);
        let asked = self.rest.scheduler_profiles.requests(&object);
        self.unname(&asked);
        self.forget_shape(at, Shift::Moves);
        self.forget_request(at, Shift::Moves);
        self.shape_of.remove(at);
        let snapshot = Arc::make_mut(&mut self.snapshot);
        snapshot.pods.remove(at);
        for node in &mut snapshot.nodes {
            let pods = node.pods.iter_mut().rev();
            pods.take_while(|pod| pod.index() > at).for_each(|pod| pod.0 -= 1);
        }
        self.renew_problems_beside(&object);
    }

    fn exchange_pod(&mut self, at: usize, object: Arc<Pod>) {
        let old = &self.snapshot.pods[at];
        let known = Arc::clone(&old.object);
        let (mut class, mut request) = (old.class, old.request);
        let stays = Place::of(&known) == Place::of(&object);
        if !stays {
            self.unbind(at);
        }
        self.forget_daemon(&known);
        self.around.remove_user(&known);
        self.around.add_user(&object);
        if !is_replica(&known, &object) {
            let asked = self.rest.scheduler_profiles.requests(&known);
            self.unname(&asked);
            self.forget_shape(at, Shift::Stays);
            self.forget_request(at, Shift::Stays);
            let (constraints, asked) = self.read(&object);
            let shape;
            (class, shape) = self.class_of(at, constraints, Shift::Stays);
            request = self.request_of(at, &asked, Shift::Stays);
            self.shape_of[at] = shape;
        }
        let mut view = self.view_of(&object, class, request);
        let pods = &mut Arc::make_mut(&mut self.snapshot).pods;
        let node = pods[at].node;
        put_on(&mut view, node);
        pods[at] = view;
        if stays {
            self.sum(node);
        } else {
            self.bind(at);
        }
        self.note_daemon(&object);
        self.renew_problems_beside(&known);
        self.renew_problems_beside(&object);
    }

    /// Whether pods that wait for claims of this one have a problem may be another question now.
    fn renew_problems_beside(&mut self, object: &Pod) {
        for (namespace, name) in self.around.waiting_beside(object) {
            let Ok(at) = self.find_pod(&namespace, &name) else {
                continue;
            };
            let waiting = Arc::clone(&self.snapshot.pods[at].object);
            let problem = problem(&waiting, &self.rest, &self.around);
            Arc::make_mut(&mut self.snapshot).pods[at].set_problem(problem);
        }
    }

    /// Constraints and requests of a pod.
    fn read(&self, object: &Pod) -> (Constraints, Resources) {
        read(object, &self.namespaces, &self.rest, &self.around)
    }

    /// The view of a pod that is on no node yet.
    fn view_of(&self, object: &Arc<Pod>, class: ClassId, request: RequestId) -> PodView {
        let budgets = selecting(object, &self.snapshot.budgets);
        let attachments = volumes::attachments(object, &self.rest.volumes);
        let problem = problem(object, &self.rest, &self.around);
        pod_view(object, (class, request), budgets, attachments, problem)
    }

    /// Takes up a use of constraints, at a position: the class, and the shape.
    fn class_of(&mut self, at: usize, constraints: Constraints, shift: Shift) -> (ClassId, u32) {
        let mut reduced = constraints.clone();
        self.observed.reduce(&mut reduced);
        let (shape, is_first) = self.shapes.take(constraints);
        if is_first {
            self.observed_now.add(&self.shapes.list[shape as usize].0);
        }
        let reduced = Arc::new(reduced);
        let (class, is_new) = self.classes.insert(at, Arc::clone(&reduced), shift);
        if is_new {
            Arc::make_mut(&mut self.snapshot).classes.push(reduced);
        }
        (ClassId(class), shape)
    }

    fn request_of(&mut self, at: usize, asked: &Resources, shift: Shift) -> RequestId {
        self.name(asked);
        let vector = self.snapshot.resources.vector(asked);
        let (request, is_new) = self.requests.insert(at, vector.clone(), shift);
        if is_new {
            let requests = &mut Arc::make_mut(&mut self.snapshot).requests;
            Arc::make_mut(requests).push(vector);
        }
        RequestId(request)
    }

    fn forget_shape(&mut self, at: usize, shift: Shift) {
        if let Some(constraints) = self.shapes.release(self.shape_of[at]) {
            self.observed_now.remove(&constraints);
        }
        let pods = &self.snapshot.pods;
        let class = pods[at].class;
        self.classes.remove(at, class.0, shift, |range| {
            let mut range = range.start..range.end.min(pods.len());
            range.find(|index| pods[*index].class == class)
        });
    }

    fn forget_request(&mut self, at: usize, shift: Shift) {
        let pods = &self.snapshot.pods;
        let request = pods[at].request;
        self.requests.remove(at, request.0, shift, |range| {
            let mut range = range.start..range.end.min(pods.len());
            range.find(|index| pods[*index].request == request)
        });
    }

    /// Puts a pod on the node that it names, or lets it wait for that.
    fn bind(&mut self, at: usize) {
        let object = Arc::clone(&self.snapshot.pods[at].object);
        let node = Place::of(&object).and_then(|place| {
            let node = self.shown_node(place.name())?;
            place.is_on(self.snapshot.node(node)).then_some(node)
        });
        let snapshot = Arc::make_mut(&mut self.snapshot);
        put_on(&mut snapshot.pods[at], node);
        let Some(node) = node else {
            return self.wait(&object);
        };
        let pods = &mut snapshot.nodes[node.index()].pods;
        if let Err(place) = pods.binary_search(&PodId::from(at)) {
            pods.insert(place, PodId::from(at));
        }
        self.sum(Some(node));
    }

    /// Takes a pod off its node, or from those who wait for one.
    fn unbind(&mut self, at: usize) {
        let snapshot = Arc::make_mut(&mut self.snapshot);
        let Some(node) = snapshot.pods[at].node.take() else {
            let object = Arc::clone(&snapshot.pods[at].object);
            return self.wait_no_more(&object);
        };
        let pods = &mut snapshot.nodes[node.index()].pods;
        if let Ok(place) = pods.binary_search(&PodId::from(at)) {
            pods.remove(place);
        }
        self.sum(Some(node));
    }

    /// All pods of a node wait for one of its name.
    pub(super) fn unbind_all(&mut self, name: &str, pods: &[PodId]) {
        if pods.is_empty() {
            return;
        }
        let snapshot = Arc::make_mut(&mut self.snapshot);
        let waiting = self.waiting.entry(name.to_owned()).or_default();
        for pod in pods {
            let view = &mut snapshot.pods[pod.index()];
            put_on(view, None);
            waiting.insert(pod_key(&view.object));
        }
    }

    /// All pods that wait for a node of this name are on it, as far as it takes them.
    pub(super) fn bind_all(&mut self, name: &str, at: usize) {
        let mut waiting = self.waiting.remove(name).unwrap_or_default();
        let found = waiting
            .iter()
            .filter_map(|(namespace, name)| self.find_pod(namespace, name).ok());
        let mut pods: Vec<PodId> = found.map(PodId::from).collect();
        let node = &self.snapshot.nodes[at];
        if node.marked_for_deletion {
            let views = &self.snapshot.pods;
            let is_on = |object: &Pod| Place::of(object).is_some_and(|place| place.is_on(node));
            pods.retain(|pod| is_on(&views[pod.index()].object));
            for pod in &pods {
                waiting.remove(&pod_key(&views[pod.index()].object));
            }
            if !waiting.is_empty() {
                self.waiting.insert(name.to_owned(), waiting);
            }
        }
        let snapshot = Arc::make_mut(&mut self.snapshot);
        for pod in &pods {
            put_on(&mut snapshot.pods[pod.index()], Some(NodeId::from(at)));
        }
        snapshot.nodes[at].pods = pods;
        self.sum(Some(NodeId::from(at)));
    }

    /// Adds up what the pods of a node ask for.
    pub(super) fn sum(&mut self, node: Option<NodeId>) {
        let Some(node) = node else { return };
        let snapshot = Arc::make_mut(&mut self.snapshot);
        let width = snapshot.resources.width();
        let mut requested = ResourceVector::zero(width);
        let mut of_daemons = ResourceVector::zero(width);
        let view = &mut snapshot.nodes[node.index()];
        view.promised = false;
        for pod in view.pods.iter().map(|pod| &snapshot.pods[pod.index()]) {
            view.promised |= pod.promised;
            if !pod.terminal {
                let request = &snapshot.requests[pod.request.index()];
                requested.add(request);
                if pod.daemon {
                    of_daemons.add(request);
                }
            }
        }
        (view.requested, view.daemon_requested) = (requested, of_daemons);
    }

    fn wait(&mut self, object: &Pod) {
        if let Some(place) = Place::of(object) {
            let waiting = self.waiting.entry(place.name().to_owned()).or_default();
            waiting.insert(pod_key(object));
        }
    }

    fn wait_no_more(&mut self, object: &Pod) {
        let Some(place) = Place::of(object) else {
            return;
        };
        if let Some(waiting) = self.waiting.get_mut(place.name()) {
            waiting.remove(&pod_key(object));
            if waiting.is_empty() {
                self.waiting.remove(place.name());
            }
        }
    }

    fn note_daemon(&mut self, object: &Pod) {
        for owner in daemon_owners(object) {
            let pods = self.daemon_pods.entry(owner.to_owned()).or_default();
            pods.insert((Reverse(created(object)), pod_key(object)));
            self.daemons_changed.insert(owner.to_owned());
        }
    }

    fn forget_daemon(&mut self, object: &Pod) {
        for owner in daemon_owners(object) {
            if let Some(pods) = self.daemon_pods.get_mut(owner) {
                pods.remove(&(Reverse(created(object)), pod_key(object)));
                if pods.is_empty() {
                    self.daemon_pods.remove(owner);
                }
            }
            self.daemons_changed.insert(owner.to_owned());
        }
    }
}

fn created(pod: &Pod) -> Option<Timestamp> {
    pod.metadata.creation_timestamp.as_ref().map(|time| time.0)
}

impl Shapes {
    /// Of distinct constraints, none of them in use.
    pub(super) fn new(all: Vec<Constraints>) -> Self {
        let list: Vec<(Arc<Constraints>, u32)> = all.into_iter().map(|one| (Arc::new(one), 0)).collect();
        let mut ids = FxHashMap::with_hasher(FxBuildHasher);
        for (index, (constraints, _)) in list.iter().enumerate() {
            ids.insert(Arc::clone(constraints), index as u32);
        }
        Shapes {
            ids,
            list,
            free: Vec::new(),
        }
    }

    /// One more use; true for the first.
    fn take(&mut self, constraints: Constraints) -> (u32, bool) {
        if let Some(id) = self.ids.get(&constraints).copied() {
            self.list[id as usize].1 += 1;
            return (id, false);
        }
        let constraints = Arc::new(constraints);
        let slot = (Arc::clone(&constraints), 1);
        let id = match self.free.pop() {
            Some(id) => {
                self.list[id as usize] = slot;
                id
            }
            None => {
                self.list.push(slot);
                (self.list.len() - 1) as u32
            }
        };
        self.ids.insert(constraints, id);
        (id, true)
    }

    /// One use less: the constraints, if that was the last.
    fn release(&mut self, id: u32) -> Option<Arc<Constraints>> {
        let slot = &mut self.list[id as usize];
        slot.1 -= 1;
        if slot.1 > 0 {
            return None;
        }
        let constraints = Arc::clone(&slot.0);
        self.ids.remove(&constraints);
        self.free.push(id);
        Some(constraints)
    }
}
