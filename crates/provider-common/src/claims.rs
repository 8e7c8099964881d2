//! Instances as NodeClaims: labels and resources that follow from what was bought.

use std::collections::BTreeMap;

use spokeshave_api::NodeClaimStatus;
use spokeshave_model::{InstanceType, Requirements};

/// The labels of which the sets allow one value.
#[must_use]
pub fn single_valued<'a>(sets: impl IntoIterator<Item = &'a Requirements>) -> BTreeMap<String, String> {
    let requirements = sets.into_iter().flat_map(Requirements::iter);
    requirements
        .filter_map(|one| Some((one.key().to_owned(), one.single_value()?.to_owned())))
        .collect()
}

/// The status of an instance of a type. A type that is not known (any more) leaves capacity and allocatable empty.
#[must_use]
pub fn status(
    provider_id: String,
    image_id: String,
    instance_type: Option<&InstanceType>,
) -> NodeClaimStatus {
    NodeClaimStatus {
        provider_id: Some(provider_id),
        image_id: Some(image_id),
        capacity: instance_type
            .map(|it| it.capacity.to_quantities())
            .unwrap_or_default(),
        allocatable: instance_type
            .map(|it| it.allocatable().to_quantities())
            .unwrap_or_default(),
        ..NodeClaimStatus::default()
    }
}
