//! `CreateFleet` of type `instant`: which places are filled, and what is said of those that could not be.
//!
//! Owns the strategies. Capacity is the market's, addresses are the subnets', reservations are the account's.

use std::cmp::Reverse;

use jiff::Timestamp;
use spokeshave_api::hash::digest;
use spokeshave_model::{CapacityType, Price};
use spokeshave_provider_aws::errors::ApiError;
use spokeshave_provider_aws::fleet::{FleetError, Launched, Place};
use spokeshave_provider_aws::replies::{FleetReply, Instance};
use spokeshave_provider_aws::requests::fleet::Override;
use spokeshave_provider_aws::requests::{FleetRequest, LaunchTemplateData, ResourceType};

use crate::catalogue;
use crate::instants::later;
use crate::market::Pool;
use crate::state::{Machine, State, tags_of};

/// A place with what decides about it.
struct Candidate {
    place: Place,
    reservation_id: Option<String>,
    pool: Pool,
    image_id: String,
    template: String,
    priority: Price,
    price: Price,
    zone_id: String,
}

impl State {
    /// Launches a fleet at once, whole or in part.
    ///
    /// # Errors
    /// What makes EC2 refuse the whole call.
    pub(crate) fn create_fleet(
        &mut self,
        request: &FleetRequest,
        now: Timestamp,
    ) -> Result<FleetReply, ApiError> {
        let token = request.client_token.clone();
        let asked = digest(&serde_json::to_string(request).unwrap_or_default());
        if let Some((known, reply)) = token.as_ref().and_then(|token| self.fleets.get(token)) {
            if *known != asked {
                return Err(ApiError::new(
                    "IdempotentParameterMismatch",
                    "The client token that you have provided has already been used with different parameters.",
                ));
            }
            return Ok(reply.clone());
        }
        let capacity_type = match request
            .target_capacity_specification
            .default_target_capacity_type
            .as_str()
        {
            "spot" => CapacityType::Spot,
            "on-demand" => CapacityType::OnDemand,
            _ => CapacityType::Reserved,
        };
        if request.type_ != "instant" {
            return Err(ApiError::new(
                "InvalidParameterValue",
                "only fleets of type instant are simulated",
            ));
        }
        let mut candidates = self.candidates(request, capacity_type, now)?;
        if candidates.is_empty() {
            return Err(ApiError::new(
                "MissingParameter",
                "The request must contain launch template overrides",
            ));
        }
        if request.dry_run {
            return Err(dry_run());
        }
        let strategy = request
            .spot_options
            .as_ref()
            .or(request.on_demand_options.as_ref());
        self.order(
            &mut candidates,
            strategy.map_or("", |it| it.allocation_strategy.as_str()),
        );
        let reply = self.fill(request, candidates, now);
        if let Some(token) = token {
            self.fleets.insert(token, (asked, reply.clone()));
        }
        Ok(reply)
    }

    fn candidates(
        &self,
        request: &FleetRequest,
        capacity_type: CapacityType,
        now: Timestamp,
    ) -> Result<Vec<Candidate>, ApiError> {
        let mut candidates = Vec::new();
        for config in &request.launch_template_configs {
            let name = &config.launch_template_specification.launch_template_name;
            let Some(template) = self.templates.get(name) else {
                return Err(template_not_found(name));
            };
            for wanted in &config.overrides {
                candidates.push(self.candidate(wanted, (name, &template.data), capacity_type, now)?);
            }
        }
        Ok(candidates)
    }

    fn candidate(
        &self,
        wanted: &Override,
        (template, data): (&str, &LaunchTemplateData),
        capacity_type: CapacityType,
        now: Timestamp,
    ) -> Result<Candidate, ApiError> {
        let Some(subnet) = self.account.subnets.get(&wanted.subnet_id) else {
            let message = format!("The subnet ID '{}' does not exist", wanted.subnet_id);
            return Err(ApiError::new("InvalidSubnetID.NotFound", &message));
        };
        let image_id = if wanted.image_id.is_empty() {
            &data.image_id
        } else {
            &wanted.image_id
        };
        if !self.account.images.contains_key(image_id) {
            let message = format!("The image id '[{image_id}]' does not exist");
            return Err(ApiError::new("InvalidAMIID.NotFound", &message));
        }
        let reservation = data.capacity_reservation_specification.as_ref();
        let reservation = reservation.and_then(|it| it.capacity_reservation_target.as_ref());
        let spot = self.market.spot_price(&wanted.instance_type, &subnet.zone, now);
        let price = match capacity_type {
            CapacityType::Spot => spot.map(|(price, _)| price),
            _ => catalogue::on_demand(&wanted.instance_type),
        };
        Ok(Candidate {
            place: Place {
                instance_type: wanted.instance_type.clone(),
                zone: subnet.zone.clone(),
                subnet_id: subnet.id.clone(),
            },
            reservation_id: reservation.map(|target| target.capacity_reservation_id.clone()),
            pool: Pool {
                instance_type: wanted.instance_type.clone(),
                zone: subnet.zone.clone(),
                capacity_type,
            },
            image_id: image_id.clone(),
            template: template.to_owned(),
            priority: wanted.priority.unwrap_or(Price::MAX),
            price: price.unwrap_or(Price::MAX),
            zone_id: subnet.zone_id.clone(),
        })
    }

    /// Best place first, as the strategy has it. How deep an offering is, where nothing limits it, is made up and stays the same.
    fn order(&self, candidates: &mut [Candidate], strategy: &str) {
        let depth = |candidate: &Candidate| {
            let pool = &candidate.pool;
            let seed = self.options.seed;
            let usual = 100
                + u32::try_from(digest(&format!("{seed}/{}/{}/depth", pool.instance_type, pool.zone)) % 900)
                    .unwrap_or_default();
            Reverse(self.market.left(pool).min(usual) / 100)
        };
        match strategy {
            "price-capacity-optimized" => candidates.sort_by_cached_key(|one| (one.price, depth(one))),
            "capacity-optimized" => candidates.sort_by_cached_key(|one| (depth(one), one.price)),
            "capacity-optimized-prioritized" => {
                candidates.sort_by_cached_key(|one| (depth(one), one.priority, one.price))
            }
            "prioritized" => candidates.sort_by_cached_key(|one| (one.priority, one.price)),
            _ => candidates.sort_by_cached_key(|one| one.price),
        }
    }

    fn fill(&mut self, request: &FleetRequest, candidates: Vec<Candidate>, now: Timestamp) -> FleetReply {
        let mut reply = FleetReply {
            fleet_id: self.next_id("fleet"),
            ..FleetReply::default()
        };
        let mut missing = request.target_capacity_specification.total_target_capacity;
        for candidate in candidates {
            while missing > 0 {
                if let Err(error) = self.refusal(&candidate, now) {
                    reply.errors.push(FleetError {
                        error,
                        place: candidate.place.clone(),
                    });
                    break;
                }
                let instance_id = self.launch(request, &candidate, now);
                reply.launched.push(Launched {
                    instance_id,
                    place: candidate.place.clone(),
                });
                missing -= 1;
            }
        }
        reply
    }

    /// Why a place cannot be filled now.
    fn refusal(&self, candidate: &Candidate, now: Timestamp) -> Result<(), ApiError> {
        let Candidate { place, pool, .. } = candidate;
        let (name, zone) = (&place.instance_type, &place.zone);
        if !self.catalogue.is_sold_in(name, zone) {
            return Err(unsupported(name, zone));
        }
        let profile = &self.templates[&candidate.template].data.iam_instance_profile.name;
        let known = self
            .profiles
            .get(profile)
            .is_some_and(|profile| profile.known_at <= now);
        if !profile.is_empty() && !known {
            let message = format!(
                "Value ({profile}) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name"
            );
            return Err(ApiError::new("InvalidParameterValue", &message));
        }
        if let Some(id) = &candidate.reservation_id {
            let free = self
                .account
                .reservations
                .get(id)
                .map_or(0, |reservation| reservation.available);
            if free <= 0 {
                return Err(ApiError::new(
                    "ReservationCapacityExceeded",
                    &format!("The capacity reservation {id} is full."),
                ));
            }
        } else if self.market.left(pool) == 0 {
            let message = format!(
                "We currently do not have sufficient {name} capacity in the Availability Zone you requested ({zone})."
            );
            return Err(ApiError::new("InsufficientInstanceCapacity", &message));
        }
        let free = self
            .account
            .subnets
            .get(&place.subnet_id)
            .map_or(0, |subnet| subnet.free_addresses);
        if free <= 0 {
            let message = format!(
                "There are not enough free addresses in subnet '{}' to satisfy the requested number of instances.",
                place.subnet_id
            );
            return Err(ApiError::new("InsufficientFreeAddressesInSubnet", &message));
        }
        Ok(())
    }

    fn launch(&mut self, request: &FleetRequest, candidate: &Candidate, now: Timestamp) -> String {
        let id = self.next_id("i");
        let number = self.next_number();
        let template = &self.templates[&candidate.template];
        let data = &template.data;
        let is_spot = candidate.pool.capacity_type == CapacityType::Spot;
        let mut tags = tags_of(&data.tag_specifications, ResourceType::Instance);
        tags.extend(tags_of(&request.tag_specifications, ResourceType::Instance));
        let interfaces = &data.network_interfaces;
        let groups = interfaces
            .iter()
            .flat_map(|interface| interface.security_group_ids.clone());
        let reservation = data.capacity_reservation_specification.as_ref();
        let facts = Instance {
            id: id.clone(),
            instance_type: candidate.place.instance_type.clone(),
            image_id: candidate.image_id.clone(),
            launched_at: Some(now),
            zone: candidate.place.zone.clone(),
            zone_id: candidate.zone_id.clone(),
            subnet_id: candidate.place.subnet_id.clone(),
            security_group_ids: groups
                .collect::<std::collections::BTreeSet<_>>()
                .into_iter()
                .collect(),
            has_efa: interfaces.iter().any(|it| {
                it.interface_type
                    .as_deref()
                    .is_some_and(|kind| kind.starts_with("efa"))
            }),
            lifecycle: if is_spot { "spot".to_owned() } else { String::new() },
            spot_request_id: is_spot.then(|| format!("sir-{number:08}")),
            capacity_reservation_id: candidate.reservation_id.clone(),
            capacity_reservation_preference: reservation.map_or_else(
                || "open".to_owned(),
                |it| it.capacity_reservation_preference.clone(),
            ),
            tenancy: data.placement.tenancy.clone(),
            private_dns_name: private_name(number),
            tags,
            ..Instance::default()
        };
        let machine = Machine {
            facts,
            visible_at: later(now, self.options.visibility_delay),
            running_at: later(now, self.options.boot_delay),
            joins_at: Some(later(now, self.options.join_delay)),
            ending_at: None,
            ended: false,
            pool: candidate.pool.clone(),
            user_data: data.user_data.clone(),
            impaired: std::collections::BTreeMap::new(),
            maintenance: None,
            is_doomed: false,
        };
        self.add(machine);
        id
    }
}

fn private_name(number: u64) -> String {
    format!(
        "ip-10-{}-{}-{}.ec2.internal",
        number / 62_500 % 250,
        number / 250 % 250,
        number % 250 + 4
    )
}

pub(crate) fn dry_run() -> ApiError {
    ApiError::new(
        "DryRunOperation",
        "Request would have succeeded, but DryRun flag is set.",
    )
}

pub(crate) fn unsupported(instance_type: &str, zone: &str) -> ApiError {
    let message = format!(
        "Your requested instance type ({instance_type}) is not supported in your requested Availability Zone ({zone})."
    );
    ApiError::new("Unsupported", &message)
}

pub(crate) fn template_not_found(name: &str) -> ApiError {
    let message = format!("The specified launch template, with template name {name}, does not exist.");
    ApiError::new("InvalidLaunchTemplateName.NotFoundException", &message)
}
