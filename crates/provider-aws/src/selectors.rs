//! What the selectors of an EC2NodeClass ask AWS, and what of the answers they choose (A2.1, A2.2).
//!
//! Owns the requests for subnets, security groups, images and capacity reservations, and what is said of terms that match nothing. Looking up is the caller's.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use spokeshave_api::EC2NodeClass;
use spokeshave_api::ec2_node_class::{
    Ami, AmiFamily, AmiSelectorTerm, CapacityReservationSelectorTerm, SecurityGroupSelectorTerm,
    SubnetSelectorTerm,
};

use crate::family;
use crate::images::{self, AliasError, Found, ImageParameter, Variant};
use crate::requests::look_up::{CapacityReservationsRequest, Filter, FilterRequest, ImagesRequest};

/// Owners of images that a name alone is looked for among: others' public images may bear any name.
const OWNERS_OF_NAMED_IMAGES: [&str; 2] = ["self", "amazon"];

/// As many terms are shown of a selector that matches nothing.
const SHOWN_TERMS: usize = 5;

fn tag_filters(tags: &BTreeMap<String, String>) -> Vec<Filter> {
    tags.iter().map(|(key, value)| Filter::tag(key, value)).collect()
}

/// One request for each term of tags, and one for each property of which terms name values.
fn requests(tags: Vec<Vec<Filter>>, properties: &[(&str, Vec<&str>)]) -> Vec<FilterRequest> {
    let named = properties.iter().filter(|(_, values)| !values.is_empty());
    let named = named.map(|(name, values)| vec![Filter::new(name, values.iter().copied())]);
    tags.into_iter()
        .chain(named)
        .map(|filters| FilterRequest { filters })
        .collect()
}

/// Requests that together find the subnets of these terms. A term with an ID is its ID, whatever else it says.
#[must_use]
pub fn subnets(terms: &[SubnetSelectorTerm]) -> Vec<FilterRequest> {
    let by_tags = terms.iter().filter(|term| term.id.is_none());
    let ids = terms.iter().filter_map(|term| term.id.as_deref()).collect();
    requests(
        by_tags.map(|term| tag_filters(&term.tags)).collect(),
        &[("subnet-id", ids)],
    )
}

/// Requests that together find the security groups of these terms.
#[must_use]
pub fn security_groups(terms: &[SecurityGroupSelectorTerm]) -> Vec<FilterRequest> {
    let by_tags = terms
        .iter()
        .filter(|term| term.id.is_none() && term.name.is_none());
    let ids = terms.iter().filter_map(|term| term.id.as_deref()).collect();
    let names = terms
        .iter()
        .filter(|term| term.id.is_none())
        .filter_map(|term| term.name.as_deref());
    requests(
        by_tags.map(|term| tag_filters(&term.tags)).collect(),
        &[("group-id", ids), ("group-name", names.collect())],
    )
}

/// Requests that together find the capacity reservations of these terms. Each ID has its own: EC2 refuses a request with one that it does not know (any more).
#[must_use]
pub fn capacity_reservations(terms: &[CapacityReservationSelectorTerm]) -> Vec<CapacityReservationsRequest> {
    let active = || Filter::new("state", ["active"]);
    let ids = terms.iter().filter_map(|term| term.id.clone());
    let by_id = ids.map(|id| CapacityReservationsRequest {
        capacity_reservation_ids: vec![id],
        filters: vec![active()],
    });
    let others = terms.iter().filter(|term| term.id.is_none()).map(|term| {
        let mut filters = vec![active()];
        filters.extend(term.owner_id.iter().map(|owner| Filter::new("owner-id", [owner])));
        filters.extend(tag_filters(&term.tags));
        let criteria = term.instance_match_criteria.iter();
        filters.extend(criteria.map(|criteria| Filter::new("instance-match-criteria", [criteria])));
        CapacityReservationsRequest {
            capacity_reservation_ids: Vec::new(),
            filters,
        }
    });
    others.chain(by_id).collect()
}

/// What is to be asked for the images of a class: first the parameters, then the images.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ImageLookUp {
    /// Parameters of the class's alias, with what their images are for.
    alias: Vec<ImageParameter>,
    /// Family of the alias.
    alias_family: Option<AmiFamily>,
    /// The alias as it is written.
    alias_text: Option<String>,
    /// Parameters that terms name.
    parameters: Vec<String>,
    ids: Vec<String>,
    queries: Vec<ImagesRequest>,
}

/// An image as EC2 describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundImage {
    /// ID.
    pub id: String,
    /// Name.
    pub name: String,
    /// `x86_64`, `arm64`, or another; empty where EC2 does not say.
    pub architecture: String,
    /// When it was made.
    pub created_at: Option<Timestamp>,
    /// From when on it is deprecated.
    pub deprecated_at: Option<Timestamp>,
}

/// What is to be asked for the images of a class, in a cluster of Kubernetes `1.<minor>`.
///
/// # Errors
/// When the alias has no images for this version of Kubernetes.
pub fn images(class: &EC2NodeClass, minor: u32) -> Result<ImageLookUp, AliasError> {
    let mut look_up = ImageLookUp::default();
    if let Some((name, version)) = class.alias() {
        let family = images::alias_family(name);
        look_up.alias = images::parameters(&family, version, minor)?;
        look_up.alias_text = Some(format!("{name}@{version}"));
        look_up.alias_family = Some(family);
        return Ok(look_up);
    }
    for term in &class.spec.ami_selector_terms {
        if let Some(id) = &term.id {
            look_up.ids.push(id.clone());
        } else if let Some(parameter) = &term.ssm_parameter {
            look_up.parameters.push(parameter.clone());
        } else {
            look_up.queries.push(image_query(term));
        }
    }
    Ok(look_up)
}

fn image_query(term: &AmiSelectorTerm) -> ImagesRequest {
    let name = term.name.as_ref();
    let mut filters: Vec<Filter> = name.iter().map(|name| Filter::new("name", [*name])).collect();
    filters.extend(tag_filters(&term.tags));
    let owners = match (&term.owner, name) {
        (Some(owner), _) => vec![owner.clone()],
        (None, Some(_)) => OWNERS_OF_NAMED_IMAGES.map(str::to_owned).to_vec(),
        (None, None) => Vec::new(),
    };
    available(filters, owners)
}

fn available(mut filters: Vec<Filter>, owners: Vec<String>) -> ImagesRequest {
    filters.push(Filter::new("state", ["available"]));
    ImagesRequest {
        filters,
        owners,
        include_deprecated: true,
    }
}

impl ImageLookUp {
    /// Names of the SSM parameters that hold IDs of images. One that does not exist is left out.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        let alias = self.alias.iter().map(|parameter| parameter.name.as_str());
        alias.chain(self.parameters.iter().map(String::as_str))
    }

    /// Requests that together find the images, with the values of the parameters that exist. A value that is no ID of an image is left out.
    #[must_use]
    pub fn requests(&self, values: &BTreeMap<String, String>) -> Vec<ImagesRequest> {
        let held = self.parameters().filter_map(|name| values.get(name));
        let held = held.filter(|value| value.starts_with("ami-"));
        let mut ids: Vec<&String> = self.ids.iter().chain(held).collect();
        ids.sort();
        ids.dedup();
        let by_id = (!ids.is_empty()).then(|| available(vec![Filter::new("image-id", ids)], Vec::new()));
        self.queries.iter().cloned().chain(by_id).collect()
    }

    /// Whether none of the alias's parameters exists.
    #[must_use]
    pub fn has_no_image(&self, values: &BTreeMap<String, String>) -> bool {
        !self.alias.is_empty() && !self.parameters().any(|name| values.contains_key(name))
    }

    /// The alias as it is written, where the class has one.
    #[must_use]
    pub fn alias(&self) -> Option<&str> {
        self.alias_text.as_deref()
    }

    /// What the images that were found are for. One whose architecture no node can have is left out.
    #[must_use]
    pub fn choose(
        &self,
        values: &BTreeMap<String, String>,
        found: &[FoundImage],
        now: Timestamp,
    ) -> Vec<Ami> {
        let mut candidates = Vec::new();
        for image in found {
            let architecture = match image.architecture.as_str() {
                "x86_64" => "amd64",
                "arm64" => "arm64",
                _ => continue,
            };
            let parameters = self.alias.iter();
            let variants: Vec<Variant> = parameters
                .filter(|parameter| values.get(&parameter.name) == Some(&image.id))
                .flat_map(|parameter| parameter.variants.iter().copied())
                .collect();
            let for_variant = |variant| Found {
                ami: Ami {
                    id: image.id.clone(),
                    name: image.name.clone(),
                    deprecated: image.deprecated_at.is_some_and(|time| time <= now),
                    requirements: self.requirements(architecture, variant),
                },
                created: image.created_at.unwrap_or(Timestamp::MIN),
            };
            if variants.is_empty() {
                candidates.push(for_variant(None));
            } else {
                candidates.extend(variants.into_iter().map(Some).map(for_variant));
            }
        }
        images::choose(candidates)
    }

    fn requirements(&self, architecture: &str, variant: Option<Variant>) -> Vec<spokeshave_api::Requirement> {
        let windows_build = self
            .alias_family
            .as_ref()
            .and_then(|family| family::traits(family).windows_build);
        match windows_build {
            Some(build) => images::windows_requirements(architecture, build),
            None => images::requirements(architecture, variant),
        }
    }
}

/// What a selector that matches nothing asks for: behind upstream's words (`what`), so that users see which tag is missing, or that a variable of their shell
/// stands there as it is.
#[must_use]
pub fn unmatched<T: Serialize>(what: &str, field: &str, terms: &[T]) -> String {
    let terms = terms.iter().filter_map(|term| match serde_json::to_value(term) {
        Ok(Value::Object(parts)) => Some(parts),
        _ => None,
    });
    let asked: Vec<String> = terms.map(|parts| asked_for(&parts)).collect();
    let shown = asked[..asked.len().min(SHOWN_TERMS)].join(", nor ");
    let more = match asked.len().saturating_sub(SHOWN_TERMS) {
        0 => String::new(),
        more => format!(", nor {more} other term(s)"),
    };
    let unreplaced = if shown.contains("${") {
        "; ${…} is a variable that was not replaced"
    } else {
        ""
    };
    format!(
        "{what}: nothing in this account and region has {shown}{more}; tag it so, or correct {field}{unreplaced}"
    )
}

/// All that one term asks for at once.
fn asked_for(parts: &serde_json::Map<String, Value>) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let parts = parts.iter().flat_map(|(field, value)| match value {
        Value::Object(tags) => tags
            .iter()
            .map(|(key, value)| match text(value).as_str() {
                "*" => format!("a tag {key}"),
                value => format!("tag {key}={value}"),
            })
            .collect(),
        value => vec![format!("{field} {}", text(value))],
    });
    parts.collect::<Vec<_>>().join(" and ")
}
