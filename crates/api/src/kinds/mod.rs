//! The kinds and the pieces that they share.
//!
//! Every spec and status keeps the fields that this version does not know (`extra`), and enums keep values that it does not know, so
//! that a read-modify-write loses nothing (invariant 42).

pub mod aks_node_class;
pub mod capacity_buffer;
pub mod disruption;
pub mod disruption_policy;
pub mod ec2_node_class;
pub mod kwok;
pub mod node_claim;
pub mod node_overlay;
pub mod node_pool;

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Resource name → quantity, as written on the wire.
pub type QuantityMap = BTreeMap<String, WireQuantity>;

/// Fields that this version does not know, kept for the next write.
pub type UnknownFields = BTreeMap<String, serde_json::Value>;

/// Implements serde's two directions for an enum of strings that keeps unknown values in `Other`.
macro_rules! open_enum {
    ($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$variant_meta])* $variant,)+
            /// A value that this version does not know. It permits nothing and is written back unchanged.
            Other(String),
        }

        impl $name {
            /// The value as written.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $($name::$variant => $text,)+
                    $name::Other(text) => text,
                }
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                match text {
                    $($text => $name::$variant,)+
                    other => $name::Other(other.to_owned()),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer).map(|text| $name::from(text.as_str()))
            }
        }
    };
}
pub(crate) use open_enum;

/// Declares a kind: its object type, with identity and access to metadata as kube-core wants them.
macro_rules! kind {
    ($(#[$meta:meta])* $name:ident, $(#[$spec_meta:meta])* $spec:ty, $status:ty, group: $group:literal, version: $version:literal, plural: $plural:literal, scope: $scope:ty) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            /// `group/version` of the kind.
            #[serde(default = "kind_identity::api_version")]
            pub api_version: String,
            /// Name of the kind.
            #[serde(default = "kind_identity::kind")]
            pub kind: String,
            /// Standard object metadata.
            #[serde(default)]
            pub metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            /// The desired state.
            $(#[$spec_meta])*
            pub spec: $spec,
            /// The observed state.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub status: Option<$status>,
        }

        mod kind_identity {
            pub(super) fn api_version() -> String {
                concat!($group, "/", $version).to_owned()
            }
            pub(super) fn kind() -> String {
                stringify!($name).to_owned()
            }
        }

        impl $name {
            /// API group.
            pub const GROUP: &'static str = $group;
            /// API version within the group.
            pub const VERSION: &'static str = $version;
            /// Kind.
            pub const KIND: &'static str = stringify!($name);
            /// Plural name in URLs.
            pub const PLURAL: &'static str = $plural;

            /// An object with a name and a spec, and without status.
            #[must_use]
            pub fn new(name: &str, spec: $spec) -> Self {
                Self {
                    api_version: kind_identity::api_version(),
                    kind: kind_identity::kind(),
                    metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                        name: Some(name.to_owned()),
                        ..Default::default()
                    },
                    spec,
                    status: None,
                }
            }

            /// `metadata.name`, empty before the server has given one.
            #[must_use]
            pub fn name(&self) -> &str {
                self.metadata.name.as_deref().unwrap_or_default()
            }

            /// `metadata.uid`, empty before the server has given one.
            #[must_use]
            pub fn uid(&self) -> &str {
                self.metadata.uid.as_deref().unwrap_or_default()
            }

            /// True once its deletion was requested.
            #[must_use]
            pub fn is_deleting(&self) -> bool {
                self.metadata.deletion_timestamp.is_some()
            }

            /// Value of a label.
            #[must_use]
            pub fn label(&self, key: &str) -> Option<&str> {
                self.metadata.labels.as_ref()?.get(key).map(String::as_str)
            }

            /// Value of an annotation.
            #[must_use]
            pub fn annotation(&self, key: &str) -> Option<&str> {
                self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
            }
        }

        impl kube_core::Resource for $name {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                stringify!($name).into()
            }
            fn group((): &()) -> std::borrow::Cow<'_, str> {
                $group.into()
            }
            fn version((): &()) -> std::borrow::Cow<'_, str> {
                $version.into()
            }
            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }
            fn api_version((): &()) -> std::borrow::Cow<'_, str> {
                concat!($group, "/", $version).into()
            }
            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}
pub(crate) use kind;

open_enum! {
    /// How a requirement compares a label (P §2.1).
    Operator {
        /// The value is one of `values`.
        In = "In",
        /// The value is none of `values`.
        NotIn = "NotIn",
        /// The label is present.
        Exists = "Exists",
        /// The label is absent.
        DoesNotExist = "DoesNotExist",
        /// The value is an integer above the one in `values`.
        Gt = "Gt",
        /// The value is an integer below the one in `values`.
        Lt = "Lt",
        /// The value is an integer at or above the one in `values`.
        Gte = "Gte",
        /// The value is an integer at or below the one in `values`.
        Lte = "Lte",
    }
}

open_enum! {
    /// Why a node is disrupted voluntarily; the keys of budgets (D-126).
    DisruptionReason {
        /// Its pods fit elsewhere, or on a cheaper node.
        Underutilized = "Underutilized",
        /// Nothing runs on it that would have to move.
        Empty = "Empty",
        /// It no longer is what its NodePool asks for.
        Drifted = "Drifted",
        /// It is older than a DisruptionPolicy wants. Only budgets without reasons and those of policies can limit it; `expireAfter` is not asked.
        Expired = "Expired",
    }
}

/// One requirement on the labels of a node (P §1.0).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Requirement {
    /// Label key.
    pub key: String,
    /// How the label is compared.
    pub operator: Operator,
    /// The values to compare with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
    /// How many different values of this key the offered instance types must have between them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_values: Option<i32>,
}

impl Requirement {
    /// A requirement without minValues.
    #[must_use]
    pub fn new(key: &str, operator: Operator, values: &[&str]) -> Self {
        Self {
            key: key.to_owned(),
            operator,
            values: values.iter().map(|value| (*value).to_owned()).collect(),
            min_values: None,
        }
    }
}

/// Which NodeClass describes the machines (P §1.0).
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeClassRef {
    /// API group of the NodeClass.
    pub group: String,
    /// Kind of the NodeClass.
    pub kind: String,
    /// Name of the NodeClass.
    pub name: String,
}

impl NodeClassRef {
    /// The label that NodeClaims and Nodes of this class carry, `<group>/<lower-case kind>` (P §1.7).
    #[must_use]
    pub fn label_key(&self) -> String {
        format!("{}/{}", self.group, self.kind.to_lowercase())
    }

    /// Whether the class is an EC2NodeClass.
    #[must_use]
    pub fn is_ec2(&self) -> bool {
        self.group == ec2_node_class::EC2NodeClass::GROUP && self.kind == ec2_node_class::EC2NodeClass::KIND
    }

    /// Whether the class is an AKSNodeClass.
    #[must_use]
    pub fn is_aks(&self) -> bool {
        self.group == aks_node_class::AKSNodeClass::GROUP && self.kind == aks_node_class::AKSNodeClass::KIND
    }

    /// Whether the class is a KWOKNodeClass.
    #[must_use]
    pub fn is_kwok(&self) -> bool {
        self.group == kwok::KWOKNodeClass::GROUP && self.kind == kwok::KWOKNodeClass::KIND
    }
}

/// A condition of an object's status. It reads what others wrote laxly: reason and message may be missing (P §1.2).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Type, unique in the list.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Generation of the object that the condition speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When the status last changed, in whole seconds.
    #[serde(serialize_with = "write_time", deserialize_with = "read_time")]
    pub last_transition_time: Timestamp,
    /// A reason in CamelCase, for programs.
    #[serde(default)]
    pub reason: String,
    /// A human-readable message.
    #[serde(default)]
    pub message: String,
}

/// Writes an instant as Kubernetes does: RFC 3339 in UTC, whole seconds.
fn write_time<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&Rfc3339(*time))
}

fn read_time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(serde::de::Error::custom)
}

/// Display of an instant as Kubernetes writes it.
pub(crate) struct Rfc3339(pub(crate) Timestamp);

impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = Timestamp::from_second(self.0.as_second()).unwrap_or(self.0);
        write!(f, "{whole}")
    }
}

/// An instant cut to whole seconds, as Kubernetes stores it.
pub fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
