//! What stands in the account before anything is launched: subnets, security groups, images, parameters, roles.
//!
//! Owns the network that classes select, and how images come about: a parameter of Systems Manager that has the form of one of AWS's public ones exists,
//! and its image with it. An account can be made to fit the classes that are to be tried on it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use spokeshave_api::EC2NodeClass;
use spokeshave_api::hash::digest;
use spokeshave_provider_aws::errors::ApiError;
use spokeshave_provider_aws::replies::{CapacityReservation, Image, SecurityGroup, Subnet, Tags};

use crate::catalogue::ZONES;

pub(crate) const VPC: &str = "vpc-0simulated00000001";
/// Account of the user.
pub(crate) const OWNER: &str = "111122223333";
/// Account that publishes EKS's images.
const EKS_OWNER: &str = "602401143452";
/// Addresses of a subnet of 4,096, less the five that AWS keeps.
const ADDRESSES: i64 = 4091;
/// Tag by which documents find subnets and groups.
pub(crate) const DISCOVERY: &str = "karpenter.sh/discovery";
/// A reservation of a class that selects one by ID.
const RESERVED_INSTANCES: i64 = 4;

/// What an account has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    pub(crate) subnets: BTreeMap<String, Subnet>,
    pub(crate) groups: BTreeMap<String, SecurityGroup>,
    pub(crate) images: BTreeMap<String, Image>,
    pub(crate) reservations: BTreeMap<String, CapacityReservation>,
    pub(crate) parameters: BTreeMap<String, String>,
    /// Roles that exist; `None` for an account that has any.
    pub(crate) roles: Option<BTreeSet<String>>,
    /// Counts releases of images: parameters of the newest image give another one after each.
    release: u32,
}

fn id(prefix: &str, name: &str) -> String {
    format!("{prefix}-0{:016x}", digest(name))
}

fn tags(pairs: &[(&str, &str)]) -> Tags {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

impl Account {
    /// A network whose subnets and groups carry the tag `karpenter.sh/discovery` with this value, one subnet a zone.
    pub(crate) fn for_cluster(cluster_name: &str) -> Self {
        let mut account = Account::default();
        account.add_network(&tags(&[(DISCOVERY, cluster_name)]));
        account
    }

    fn add_network(&mut self, network: &Tags) {
        for (number, _) in ZONES.iter().enumerate() {
            self.add_subnet(
                &id("subnet", &format!("{network:?}/{number}")),
                number,
                network.clone(),
            );
        }
        self.add_group(&id("sg", &format!("{network:?}")), "nodes", network.clone());
    }

    fn add_subnet(&mut self, id: &str, zone: usize, tags: Tags) {
        let (name, zone_id) = ZONES[zone % ZONES.len()];
        let subnet = Subnet {
            id: id.to_owned(),
            zone: name.to_owned(),
            zone_id: zone_id.to_owned(),
            vpc_id: VPC.to_owned(),
            free_addresses: ADDRESSES,
            tags,
            ..Subnet::default()
        };
        self.subnets.entry(id.to_owned()).or_insert(subnet);
    }

    fn add_group(&mut self, id: &str, name: &str, tags: Tags) {
        let group = SecurityGroup {
            id: id.to_owned(),
            name: name.to_owned(),
            vpc_id: VPC.to_owned(),
            tags,
        };
        self.groups.entry(id.to_owned()).or_insert(group);
    }

    fn add_image(&mut self, image: Image) {
        self.images.entry(image.id.clone()).or_insert(image);
    }

    /// Makes what a class selects and the account has not. What cannot be made from a selector (a name with wildcards) is left out.
    pub(crate) fn fit(&mut self, class: &EC2NodeClass, now: Timestamp) {
        let spec = &class.spec;
        for (number, term) in spec.subnet_selector_terms.iter().enumerate() {
            match &term.id {
                Some(id) => self.add_subnet(id, number, Tags::new()),
                None => self.fit_subnets(&concrete(&term.tags)),
            }
        }
        for term in &spec.security_group_selector_terms {
            match (&term.id, &term.name) {
                (Some(id), _) => self.add_group(id, id, Tags::new()),
                (None, Some(name)) => self.add_group(&id("sg", name), &name.replace('*', "x"), Tags::new()),
                (None, None) => self.fit_groups(&concrete(&term.tags)),
            }
        }
        for term in &spec.ami_selector_terms {
            let named = |id: String, name: String| Image {
                id,
                name,
                architecture: "x86_64".to_owned(),
                state: "available".to_owned(),
                owner_id: OWNER.to_owned(),
                created_at: Some(now),
                tags: concrete(&term.tags),
                ..Image::default()
            };
            if let Some(id) = &term.id {
                self.add_image(named(id.clone(), id.clone()));
            } else if let Some(parameter) = term
                .ssm_parameter
                .as_ref()
                .filter(|name| !name.starts_with("/aws/service/"))
            {
                let image = id("ami", parameter);
                self.add_image(named(image.clone(), parameter.clone()));
                self.parameters.insert(parameter.clone(), image);
            } else if term.alias.is_none() {
                let name = term.name.as_deref().unwrap_or("own-image").replace('*', "x");
                self.add_image(named(id("ami", &format!("{name}{:?}", term.tags)), name));
            }
        }
        for term in &spec.capacity_reservation_selector_terms {
            let reservation_id = term
                .id
                .clone()
                .unwrap_or_else(|| id("cr", &format!("{:?}", term.tags)));
            let (zone, zone_id) = ZONES[0];
            let reservation = CapacityReservation {
                id: reservation_id.clone(),
                owner_id: term.owner_id.clone().unwrap_or_else(|| OWNER.to_owned()),
                instance_type: "m5.large".to_owned(),
                zone: zone.to_owned(),
                zone_id: zone_id.to_owned(),
                state: "active".to_owned(),
                tenancy: "default".to_owned(),
                platform: "Linux/UNIX".to_owned(),
                instance_match_criteria: term
                    .instance_match_criteria
                    .clone()
                    .unwrap_or_else(|| "targeted".to_owned()),
                reservation_type: "default".to_owned(),
                total: RESERVED_INSTANCES,
                available: RESERVED_INSTANCES,
                tags: concrete(&term.tags),
                ..CapacityReservation::default()
            };
            self.reservations.entry(reservation_id).or_insert(reservation);
        }
    }

    fn fit_subnets(&mut self, wanted: &Tags) {
        if self.subnets.values().any(|subnet| has_all(&subnet.tags, wanted)) {
            return;
        }
        for number in 0..ZONES.len() {
            self.add_subnet(
                &id("subnet", &format!("{wanted:?}/{number}")),
                number,
                wanted.clone(),
            );
        }
    }

    fn fit_groups(&mut self, wanted: &Tags) {
        if !self.groups.values().any(|group| has_all(&group.tags, wanted)) {
            self.add_group(&id("sg", &format!("{wanted:?}")), "nodes", wanted.clone());
        }
    }

    /// From now on parameters of the newest images give other ones.
    pub(crate) fn release_images(&mut self) {
        self.release += 1;
    }

    /// The value of a parameter. Where it is one of AWS's for an image, the image exists from now on.
    ///
    /// # Errors
    /// `ParameterNotFound`.
    pub(crate) fn parameter(&mut self, name: &str, now: Timestamp) -> Result<String, ApiError> {
        if let Some(value) = self.parameters.get(name) {
            return Ok(value.clone());
        }
        let Some(mut image) = self.public_image(name) else {
            return Err(ApiError::new(
                "ParameterNotFound",
                &format!("{name} was not found"),
            ));
        };
        image.created_at = Some(now);
        let value = image.id.clone();
        self.add_image(image);
        Ok(value)
    }

    /// The image of a public parameter: its name is what stands before the last part of the path.
    fn public_image(&self, parameter: &str) -> Option<Image> {
        let path = parameter
            .strip_prefix("/aws/service/")?
            .strip_suffix("/image_id")?;
        let parts: Vec<&str> = path.split('/').collect();
        let is_known = matches!(parts[0], "eks" | "bottlerocket") || parts[0].starts_with("ami-windows");
        let is_arm = parts
            .iter()
            .any(|part| part.split(['-', '_']).any(|word| word == "arm64"));
        let is_newest = parts
            .last()
            .is_some_and(|last| matches!(*last, "recommended" | "latest"))
            || parts[0].starts_with("ami-windows");
        if !is_known {
            return None;
        }
        let version = if is_newest {
            format!("release-{}", self.release)
        } else {
            "pinned".to_owned()
        };
        let name = format!("{}-{version}", parts[1..].join("-"));
        Some(Image {
            id: id("ami", &name),
            name,
            architecture: if is_arm { "arm64" } else { "x86_64" }.to_owned(),
            state: "available".to_owned(),
            owner_id: EKS_OWNER.to_owned(),
            owner_alias: "amazon".to_owned(),
            ..Image::default()
        })
    }

    pub(crate) fn has_role(&self, role: &str) -> bool {
        self.roles.as_ref().is_none_or(|roles| roles.contains(role))
    }
}

/// Tags as something can carry them: where any value will do, one.
fn concrete(wanted: &BTreeMap<String, String>) -> Tags {
    let tags = wanted.iter().map(|(key, value)| {
        (
            key.clone(),
            if value == "*" {
                "any".to_owned()
            } else {
                value.clone()
            },
        )
    });
    tags.collect()
}

fn has_all(tags: &Tags, wanted: &Tags) -> bool {
    wanted.iter().all(|(key, value)| tags.get(key) == Some(value))
}
