//! From one piece of text to one typed object, in a single pass, whatever the order of its fields.
//!
//! The kind decides the type, and stands in front nearly always; what stands before it is held back as a tree and replayed. It knows which kinds
//! decisions read, and nothing about files.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, IgnoredAny, IntoDeserializer as _,
    MapAccess, SeqAccess, Visitor,
};
use serde_json::Value;
use serde_json::value::RawValue;
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_model::default_spread::controller_key;
use spokeshave_model::trim;

/// The outside of a JSON document: whether it is a list, and the text of its items.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Envelope<'a> {
    #[serde(borrow, default)]
    pub(super) api_version: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) kind: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) items: Option<Vec<&'a RawValue>>,
}

/// What decisions need of a NodeClass of any provider.
#[derive(Clone, Debug)]
pub(crate) struct NodeClass {
    /// API group.
    pub(crate) group: String,
    /// Kind.
    pub(crate) kind: String,
    /// Name.
    pub(crate) name: String,
    /// Its condition Ready, if it has one.
    pub(crate) ready: Option<bool>,
}

/// One object.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one at a time, and nearly always a pod"
)]
#[derive(Debug)]
pub(super) enum Found {
    Node(Arc<Node>),
    Pod(Pod),
    NodePool(Arc<NodePool>),
    NodeClaim(Arc<NodeClaim>),
    NodeClass(NodeClass),
    DaemonSet(Arc<DaemonSet>),
    PodDisruptionBudget(Arc<PodDisruptionBudget>),
    Namespace(Arc<Namespace>),
    PersistentVolume(Arc<PersistentVolume>),
    PersistentVolumeClaim(Arc<PersistentVolumeClaim>),
    StorageClass(Arc<StorageClass>),
    CsiNode(Arc<CSINode>),
    NodeOverlay,
    Service(Arc<Service>),
    /// What a controller of pods selects, by its key.
    Controller(String, LabelSelector),
    /// A kind that owns pods: known, and read by nobody.
    Owner,
    /// Another kind, with its version.
    Unknown((String, String)),
    /// A list that could not be taken apart as text.
    List {
        default: Option<(String, String)>,
        items: Vec<Value>,
    },
}

/// Kinds that own pods or belong to Karpenter, and that no decision reads.
const SILENT: [(&str, &str); 6] = [
    ("apps/v1", "Deployment"),
    ("apps/v1", "ControllerRevision"),
    ("batch/v1", "Job"),
    ("batch/v1", "CronJob"),
    ("coordination.k8s.io/v1", "Lease"),
    ("policy/v1", "Eviction"),
];

/// Reads one object; items of a typed list take version and kind from it.
pub(super) struct Object {
    pub(super) default: Option<(String, String)>,
}

impl Object {
    /// Reads the object that is the only element of a sequence.
    pub(super) fn one_of_sequence<'de, D: Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> Result<Found, D::Error> {
        struct One(Object);
        impl<'de> Visitor<'de> for One {
            type Value = Found;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an item of a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Found, A::Error> {
                let found = items.next_element_seed(self.0)?;
                while items.next_element::<IgnoredAny>()?.is_some() {}
                found.ok_or_else(|| A::Error::custom("expected an item"))
            }
        }
        deserializer.deserialize_seq(One(self))
    }
}

impl<'de> DeserializeSeed<'de> for Object {
    type Value = Found;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Found, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Object {
    type Value = Found;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a Kubernetes object with apiVersion and kind")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Found, A::Error> {
        if let Some((api_version, kind)) = &self.default {
            return typed(api_version, kind, Replay::new(Vec::new(), map));
        }
        let (mut api_version, mut kind) = (None, None);
        let mut held: Vec<(String, Value)> = Vec::new();
        while api_version.is_none() || kind.is_none() {
            let Some(key) = map.next_key::<String>()? else {
                return Err(A::Error::custom(foreign(&held, kind.as_deref())));
            };
            match key.as_str() {
                "apiVersion" => api_version = Some(map.next_value::<String>()?),
                "kind" => kind = Some(map.next_value::<String>()?),
                _ => held.push((key, map.next_value()?)),
            }
        }
        let (api_version, kind) = (api_version.unwrap_or_default(), kind.unwrap_or_default());
        typed(&api_version, &kind, Replay::new(held, map))
    }
}

fn foreign(held: &[(String, Value)], kind: Option<&str>) -> String {
    let keys: Vec<&str> = held.iter().take(4).map(|(key, _)| key.as_str()).collect();
    let missing = if kind.is_some() {
        "apiVersion"
    } else {
        "apiVersion and kind"
    };
    format!(
        "is not a Kubernetes object: expected {missing}, found only {}",
        if keys.is_empty() {
            "an empty object".to_owned()
        } else {
            keys.join(", ")
        }
    )
}

fn typed<'de, A: MapAccess<'de>>(api_version: &str, kind: &str, map: Replay<A>) -> Result<Found, A::Error> {
    Ok(match (api_version, kind) {
        ("v1", "Pod") => {
            let mut pod: Pod = read(map)?;
            trim::pod(&mut pod);
            Found::Pod(pod)
        }
        ("v1", "Node") => {
            let mut node: Node = read(map)?;
            trim::node(&mut node);
            Found::Node(Arc::new(node))
        }
        ("v1", "Service") => Found::Service(Arc::new(read(map)?)),
        ("apps/v1", "ReplicaSet" | "StatefulSet") => {
            let controller: AnyController<LabelSelector> = read(map)?;
            Found::Controller(controller.key(kind), controller.spec.selector.unwrap_or_default())
        }
        ("v1", "ReplicationController") => {
            let controller: AnyController<BTreeMap<String, String>> = read(map)?;
            let key = controller.key(kind);
            let selector = LabelSelector {
                match_labels: controller.spec.selector,
                ..LabelSelector::default()
            };
            Found::Controller(key, selector)
        }
        ("karpenter.sh/v1", "NodePool") => Found::NodePool(Arc::new(read(map)?)),
        ("karpenter.sh/v1", "NodeClaim") => Found::NodeClaim(Arc::new(read(map)?)),
        ("apps/v1", "DaemonSet") => Found::DaemonSet(Arc::new(read(map)?)),
        ("policy/v1", "PodDisruptionBudget") => Found::PodDisruptionBudget(Arc::new(read(map)?)),
        ("v1", "Namespace") => Found::Namespace(Arc::new(read(map)?)),
        ("v1", "PersistentVolume") => Found::PersistentVolume(Arc::new(read(map)?)),
        ("v1", "PersistentVolumeClaim") => Found::PersistentVolumeClaim(Arc::new(read(map)?)),
        ("storage.k8s.io/v1", "StorageClass") => Found::StorageClass(Arc::new(read(map)?)),
        ("storage.k8s.io/v1", "CSINode") => Found::CsiNode(Arc::new(read(map)?)),
        (version, "NodeOverlay") if version.starts_with("karpenter.sh/") => drained(map, Found::NodeOverlay)?,
        (version, kind) if kind.ends_with("NodeClass") => {
            let class: AnyNodeClass = read(map)?;
            Found::NodeClass(NodeClass {
                group: version.split_once('/').map_or("", |(group, _)| group).to_owned(),
                kind: kind.to_owned(),
                name: class.metadata.name,
                ready: class
                    .status
                    .conditions
                    .iter()
                    .find(|condition| condition.type_ == "Ready")
                    .map(|condition| condition.status == "True"),
            })
        }
        (version, kind) if kind.ends_with("List") => {
            let list: AnyList = read(map)?;
            let default = kind
                .strip_suffix("List")
                .filter(|kind| !kind.is_empty())
                .map(|kind| (version.to_owned(), kind.to_owned()));
            Found::List {
                default,
                items: list.items,
            }
        }
        identity if SILENT.contains(&identity) => drained(map, Found::Owner)?,
        (version, kind) => drained(map, Found::Unknown((kind.to_owned(), version.to_owned())))?,
    })
}

/// What default topology spread needs of a controller.
#[derive(Deserialize)]
struct AnyController<S> {
    #[serde(default)]
    metadata: ControllerName,
    #[serde(default = "ControllerSpec::none")]
    spec: ControllerSpec<S>,
}

#[derive(Default, Deserialize)]
struct ControllerName {
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct ControllerSpec<S> {
    selector: Option<S>,
}

impl<S> ControllerSpec<S> {
    fn none() -> Self {
        Self { selector: None }
    }
}

impl<S> AnyController<S> {
    fn key(&self, kind: &str) -> String {
        controller_key(kind, &self.metadata.namespace, &self.metadata.name)
    }
}

#[derive(Deserialize)]
struct AnyNodeClass {
    metadata: AnyName,
    #[serde(default)]
    status: AnyStatus,
}

#[derive(Deserialize)]
struct AnyName {
    name: String,
}

#[derive(Default, Deserialize)]
struct AnyStatus {
    #[serde(default)]
    conditions: Vec<AnyCondition>,
}

#[derive(Deserialize)]
struct AnyCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
}

#[derive(Deserialize)]
struct AnyList {
    #[serde(default)]
    items: Vec<Value>,
}

fn read<'de, A: MapAccess<'de>, T: DeserializeOwned>(map: Replay<A>) -> Result<T, A::Error> {
    T::deserialize(MapAccessDeserializer::new(map))
}

fn drained<'de, A: MapAccess<'de>>(mut map: Replay<A>, found: Found) -> Result<Found, A::Error> {
    while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
    Ok(found)
}

/// Fields that were held back, then the others.
struct Replay<A> {
    held: std::vec::IntoIter<(String, Value)>,
    value: Option<Value>,
    rest: A,
}

impl<A> Replay<A> {
    fn new(held: Vec<(String, Value)>, rest: A) -> Self {
        Self {
            held: held.into_iter(),
            value: None,
            rest,
        }
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Replay<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        match self.held.next() {
            Some((key, value)) => {
                self.value = Some(value);
                seed.deserialize(key.into_deserializer()).map(Some)
            }
            None => self.rest.next_key_seed(seed),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        match self.value.take() {
            Some(value) => seed.deserialize(value).map_err(A::Error::custom),
            None => self.rest.next_value_seed(seed),
        }
    }
}
