//! References to NodeClasses, in the form of v1: group, kind, name.

use serde_json::{Value, json};

use crate::aks_node_class;

/// A NodeClass by group, kind and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassRef {
    /// `karpenter.k8s.aws`.
    pub group: String,
    /// `EC2NodeClass`.
    pub kind: String,
    /// The object's name.
    pub name: String,
}

impl ClassRef {
    pub(crate) const AWS_GROUP: &'static str = "karpenter.k8s.aws";
    pub(crate) const AWS_KIND: &'static str = "EC2NodeClass";

    pub(crate) fn aws(name: &str) -> Self {
        Self {
            group: Self::AWS_GROUP.to_owned(),
            kind: Self::AWS_KIND.to_owned(),
            name: name.to_owned(),
        }
    }

    pub(crate) fn aks(name: &str) -> Self {
        Self {
            group: aks_node_class::GROUP.to_owned(),
            kind: aks_node_class::KIND.to_owned(),
            name: name.to_owned(),
        }
    }

    pub(crate) fn value(&self) -> Value {
        json!({"group": self.group, "kind": self.kind, "name": self.name})
    }

    /// The NodeClass that an object is; of kinds whose name ends so.
    pub(crate) fn of(object: &Value) -> Option<Self> {
        let (version, kind) = (object["apiVersion"].as_str()?, object["kind"].as_str()?);
        let (group, _) = version.split_once('/')?;
        let is_template = (group, kind) == (Self::AWS_GROUP, "AWSNodeTemplate");
        (is_template || kind.ends_with("NodeClass")).then(|| Self {
            group: group.to_owned(),
            kind: if is_template { Self::AWS_KIND } else { kind }.to_owned(),
            name: object["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
        })
    }
}

impl std::fmt::Display for ClassRef {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}/{}", self.group, self.kind, self.name)
    }
}

impl std::str::FromStr for ClassRef {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split('/').collect::<Vec<_>>()[..] {
            [group, kind, name] if !group.is_empty() && !kind.is_empty() && !name.is_empty() => Ok(Self {
                group: group.to_owned(),
                kind: kind.to_owned(),
                name: name.to_owned(),
            }),
            _ => Err(format!(
                "{text:?}: expected GROUP/KIND/NAME, such as karpenter.k8s.aws/EC2NodeClass/default"
            )),
        }
    }
}
