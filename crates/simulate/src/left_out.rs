//! What of a dump no run begins with, and why.
//!
//! Owns the reasons and their words, and judges nothing.

/// An object that no run begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// `Node` or `NodeClaim`.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// Why.
    pub why: Why,
}

/// Why a Node or NodeClaim is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// It belongs to no NodePool that every policy has.
    NoNodePool,
    /// A Node of a NodePool without its NodeClaim.
    NoNodeClaim,
    /// No NodePool owns it, and the cluster has no NodeClaim at all: nothing there would be left to NodePools.
    NoNodeClaims,
    /// A NodeClaim without its Node.
    NoNode,
    /// Its instance is that of another one, too.
    Twin,
    /// It is being deleted.
    Deleting,
    /// It is not initialized yet.
    NotInitialized,
    /// Its Node is not ready.
    NotReady,
    /// The Node does not say what it has for pods.
    NoAllocatable,
    /// It is reserved capacity, which is not simulated.
    Reserved,
    /// Its NodePool does not sell what it is, or nobody knows for how much.
    NotSold,
}

impl Why {
    /// What comes after the objects in a sentence.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Why::NoNodePool => "of no NodePool that every policy has",
            Why::NoNodeClaim => "without a NodeClaim",
            Why::NoNodeClaims => "of no NodePool in a cluster without NodeClaims",
            Why::NoNode => "without a Node",
            Why::Twin => "with the instance of another one",
            Why::Deleting => "being deleted",
            Why::NotInitialized => "not initialized yet",
            Why::NotReady => "not ready",
            Why::NoAllocatable => "without allocatable amounts",
            Why::Reserved => "of reserved capacity, which is not simulated",
            Why::NotSold => {
                "of an instance type, zone or capacity type that the catalog has not, or has no price of"
            }
        }
    }
}
