//! A kind of NodeClass by its names.

/// A kind of NodeClass that a provider serves.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeClassKind {
    /// API group, such as `karpenter.kwok.sh`.
    pub group: String,
    /// API version within the group, such as `v1alpha1`.
    pub version: String,
    /// Kind, such as `KWOKNodeClass`.
    pub kind: String,
    /// Plural name in URLs, such as `kwoknodeclasses`.
    pub plural: String,
}

impl NodeClassKind {
    /// The label that a Node and a NodeClaim carry for this kind, `<group>/<lower-case kind>`; its value is the name of the
    /// NodeClass (P §1.7).
    #[must_use]
    pub fn label(&self) -> String {
        format!("{}/{}", self.group, self.kind.to_lowercase())
    }

    /// `apiVersion` of the kind's objects.
    #[must_use]
    pub fn api_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }
}
