//! What providers of different clouds do alike, once.
//!
//! | Module | What |
//! |---|---|
//! | [`class_hash`] | the hash of a NodeClass, the annotations that carry it, static drift |
//! | [`claims`] | labels and status of an instance |
//! | [`for_sale`] | what a NodeClaim asks for, which offerings would do, which is cheapest |
//! | [`left_out`] | what has run out lately |
//! | [`proxies`] | which hosts are asked directly, whatever proxy there is |
//! | [`readiness`] | whether a NodeClass may be launched from |
//! | [`status_patch`] | what is written of a NodeClass: its status, its finalizer's end |
//!
//! Pure. It knows no cloud: which fields are hashed, which labels and conditions there are and for how long something is left out is each provider's.
//!
//! Two things that upstream's providers have are not here, because only one of ours has them. *Batching*: EC2 describes, launches and ends many instances in
//! one request, ARM's requests are about one machine each. *Hydration*: EC2's launch templates are objects of the provider's own, which it has to find again
//! when it starts; at Azure nothing is kept besides machines, interfaces and their tags.

pub mod claims;
pub mod class_hash;
pub mod for_sale;
pub mod left_out;
pub mod proxies;
pub mod readiness;
pub mod status_patch;
