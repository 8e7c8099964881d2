//! Can this pod go there, and if not why: packing pods onto nodes and planned NodeClaims.
