//! The services as a caller has them, and the calls of EC2, answered from the state.
//!
//! Owns what each call of EC2 finds and refuses; those of the services around it are in `services`. How a call gets here and back is [`cloud`](crate::cloud)'s.

use std::sync::Arc;

use futures::FutureExt as _;
use jiff::Timestamp;
use spokeshave_aws_cloud::Meter;
use spokeshave_aws_cloud::ports::{Aws, AwsFuture, Ec2};
use spokeshave_provider_aws::describe::InstanceTypeInfo;
use spokeshave_provider_aws::errors::ApiError;
use spokeshave_provider_aws::prices::SpotPrice;
use spokeshave_provider_aws::replies::{
    CapacityReservation, FleetReply, Image, Instance, InstanceStatus, LaunchTemplate, ScheduledEvent,
    SecurityGroup, StatusDetail, Subnet, Tags, Terminated,
};
use spokeshave_provider_aws::requests::look_up::{
    CapacityReservationsRequest, FilterRequest, ImagesRequest, InstancesRequest, LaunchTemplatesRequest,
    TagsRequest,
};
use spokeshave_provider_aws::requests::{
    Filter, FleetRequest, LaunchTemplateRequest, ResourceType, RunInstancesRequest,
};

use crate::account::OWNER;
use crate::cloud::{Lifeline, SimulatedEc2};
use crate::filters::matches;
use crate::fleet::{dry_run, template_not_found, unsupported};
use crate::state::{Check, State, Template, tags_of};

/// User data of an instance may have this many bytes.
const USER_DATA_LIMIT: usize = 16 * 1024;

/// The services as one caller has them.
#[derive(Clone, Debug)]
pub(crate) struct Services {
    pub(crate) cloud: SimulatedEc2,
    life: Option<Lifeline>,
}

impl Services {
    fn of(cloud: SimulatedEc2, life: Option<Lifeline>) -> Aws {
        let services = Arc::new(Services { cloud, life });
        Aws {
            ec2: services.clone(),
            ssm: services.clone(),
            iam: services.clone(),
            eks: services.clone(),
            sqs: services.clone(),
            pricing: services.clone(),
            zonal_shift: services,
            meter: Meter::default(),
        }
    }

    pub(crate) fn call<'a, T: Send + 'a>(
        &'a self,
        action: &'a str,
        what: impl FnOnce(&mut State, Timestamp) -> Result<T, ApiError> + Send + 'a,
    ) -> AwsFuture<'a, T> {
        self.cloud.call(self.life.as_ref(), action, what).boxed()
    }
}

impl SimulatedEc2 {
    /// All services.
    #[must_use]
    pub fn services(&self) -> Aws {
        Services::of(self.clone(), None)
    }

    /// All services for a caller that dies with its call of this number, counted from one.
    #[must_use]
    pub fn mortal_services(&self, calls: u64) -> (Aws, Lifeline) {
        let life = Lifeline::after(calls);
        (Services::of(self.clone(), Some(life.clone())), life)
    }
}

fn one(value: &str) -> Option<Vec<String>> {
    Some(vec![value.to_owned()])
}

fn not_found(code: &str, what: &str, name: &str) -> ApiError {
    ApiError::new(code, &format!("The {what} '{name}' does not exist"))
}

/// Those of many things that a predicate keeps, which may refuse its filters.
pub(crate) fn kept<'a, T: Clone + 'a>(
    things: impl Iterator<Item = &'a T>,
    keep: impl Fn(&T) -> Result<bool, ApiError>,
) -> Result<Vec<T>, ApiError> {
    let mut found = Vec::new();
    for thing in things {
        if keep(thing)? {
            found.push(thing.clone());
        }
    }
    Ok(found)
}

impl Ec2 for Services {
    fn instance_types<'a>(&'a self, filters: &'a [Filter]) -> AwsFuture<'a, Vec<InstanceTypeInfo>> {
        self.call("DescribeInstanceTypes", move |state, _| {
            kept(state.catalogue.types.values(), |info| {
                matches(filters, &Tags::new(), |name| match name {
                    "supported-virtualization-type" => one("hvm"),
                    "instance-type" => one(&info.instance_type),
                    "processor-info.supported-architecture" => Some(
                        info.processor_info
                            .iter()
                            .flat_map(|it| it.supported_architectures.clone())
                            .collect(),
                    ),
                    _ => None,
                })
            })
        })
    }

    fn instance_type_offerings(&self) -> AwsFuture<'_, Vec<(String, String)>> {
        self.call("DescribeInstanceTypeOfferings", |state, _| {
            let zones = &state.catalogue.zones;
            let pairs = zones
                .iter()
                .flat_map(|(name, zones)| zones.iter().map(|zone| (name.clone(), zone.clone())));
            Ok(pairs.collect())
        })
    }

    fn spot_prices(&self, _start: Timestamp) -> AwsFuture<'_, Vec<SpotPrice>> {
        self.call("DescribeSpotPriceHistory", |state, now| {
            let zones = state.catalogue.zones.iter();
            let pairs = zones.flat_map(|(name, zones)| zones.iter().map(move |zone| (name, zone)));
            let sold = pairs.filter(|(name, _)| {
                let info = &state.catalogue.types[*name];
                info.supported_usage_classes.iter().any(|usage| usage == "spot")
            });
            let prices = sold.filter_map(|(name, zone)| {
                let (price, time) = state.market.spot_price(name, zone, now)?;
                Some(SpotPrice {
                    instance_type: name.clone(),
                    zone: zone.clone(),
                    time,
                    price,
                })
            });
            Ok(prices.collect())
        })
    }

    fn subnets<'a>(&'a self, request: &'a FilterRequest) -> AwsFuture<'a, Vec<Subnet>> {
        self.call("DescribeSubnets", move |state, _| {
            kept(state.account.subnets.values(), |subnet| {
                matches(&request.filters, &subnet.tags, |name| match name {
                    "subnet-id" => one(&subnet.id),
                    "vpc-id" => one(&subnet.vpc_id),
                    "availability-zone" => one(&subnet.zone),
                    _ => None,
                })
            })
        })
    }

    fn security_groups<'a>(&'a self, request: &'a FilterRequest) -> AwsFuture<'a, Vec<SecurityGroup>> {
        self.call("DescribeSecurityGroups", move |state, _| {
            kept(state.account.groups.values(), |group| {
                matches(&request.filters, &group.tags, |name| match name {
                    "group-id" => one(&group.id),
                    "group-name" => one(&group.name),
                    "vpc-id" => one(&group.vpc_id),
                    _ => None,
                })
            })
        })
    }

    fn images<'a>(&'a self, request: &'a ImagesRequest) -> AwsFuture<'a, Vec<Image>> {
        self.call("DescribeImages", move |state, _| {
            kept(state.account.images.values(), |image| {
                let is_owned = |owner: &String| match owner.as_str() {
                    "self" => image.owner_id == OWNER,
                    owner => owner == image.owner_id || owner == image.owner_alias,
                };
                let owned = request.owners.is_empty() || request.owners.iter().any(is_owned);
                let found = matches(&request.filters, &image.tags, |name| match name {
                    "image-id" => one(&image.id),
                    "name" => one(&image.name),
                    "state" => one(&image.state),
                    "architecture" => one(&image.architecture),
                    _ => None,
                })?;
                Ok(owned && found)
            })
        })
    }

    fn capacity_reservations<'a>(
        &'a self,
        request: &'a CapacityReservationsRequest,
    ) -> AwsFuture<'a, Vec<CapacityReservation>> {
        self.call("DescribeCapacityReservations", move |state, _| {
            let ids = &request.capacity_reservation_ids;
            if let Some(id) = ids
                .iter()
                .find(|id| !state.account.reservations.contains_key(*id))
            {
                return Err(not_found(
                    "InvalidCapacityReservationId.NotFound",
                    "capacity reservation ID",
                    id,
                ));
            }
            kept(state.account.reservations.values(), |one_of| {
                let found = matches(&request.filters, &one_of.tags, |name| match name {
                    "state" => one(&one_of.state),
                    "owner-id" => one(&one_of.owner_id),
                    "instance-match-criteria" => one(&one_of.instance_match_criteria),
                    _ => None,
                })?;
                Ok(found && (ids.is_empty() || ids.contains(&one_of.id)))
            })
        })
    }

    fn create_launch_template<'a>(
        &'a self,
        request: &'a LaunchTemplateRequest,
    ) -> AwsFuture<'a, LaunchTemplate> {
        self.call("CreateLaunchTemplate", move |state, _| {
            let (name, data) = (&request.launch_template_name, &request.launch_template_data);
            if state.templates.contains_key(name) {
                let code = "InvalidLaunchTemplateName.AlreadyExistsException";
                return Err(ApiError::new(
                    code,
                    &format!("Launch template name already in use: {name}"),
                ));
            }
            if data.user_data.len() > USER_DATA_LIMIT {
                let message = format!("User data is limited to {USER_DATA_LIMIT} bytes");
                return Err(ApiError::new("InvalidUserData.Malformed", &message));
            }
            let reply = LaunchTemplate {
                id: state.next_id("lt"),
                name: name.clone(),
                tags: tags_of(&request.tag_specifications, ResourceType::LaunchTemplate),
            };
            let template = Template {
                reply: reply.clone(),
                data: data.clone(),
            };
            state.templates.insert(name.clone(), template);
            Ok(reply)
        })
    }

    fn launch_templates<'a>(
        &'a self,
        request: &'a LaunchTemplatesRequest,
    ) -> AwsFuture<'a, Vec<LaunchTemplate>> {
        self.call("DescribeLaunchTemplates", move |state, _| {
            let names = &request.launch_template_names;
            if let Some(name) = names.iter().find(|name| !state.templates.contains_key(*name)) {
                return Err(template_not_found(name));
            }
            let templates = state.templates.values().map(|template| &template.reply);
            kept(templates, |template| {
                let found = matches(&request.filters, &template.tags, |name| match name {
                    "launch-template-name" => one(&template.name),
                    _ => None,
                })?;
                Ok(found && (names.is_empty() || names.contains(&template.name)))
            })
        })
    }

    fn delete_launch_template<'a>(&'a self, id: &'a str) -> AwsFuture<'a, ()> {
        self.call("DeleteLaunchTemplate", move |state, _| {
            let Some(name) = state.template_by_id(id).map(str::to_owned) else {
                return Err(not_found(
                    "InvalidLaunchTemplateId.NotFound",
                    "launch template ID",
                    id,
                ));
            };
            state.templates.remove(&name);
            Ok(())
        })
    }

    fn create_fleet<'a>(&'a self, request: &'a FleetRequest) -> AwsFuture<'a, FleetReply> {
        self.call("CreateFleet", move |state, now| state.create_fleet(request, now))
    }

    fn rehearse_run_instances<'a>(&'a self, request: &'a RunInstancesRequest) -> AwsFuture<'a, ()> {
        self.call("RunInstances", move |state, now| {
            let name = &request.launch_template.launch_template_name;
            let Some(template) = state.templates.get(name) else {
                return Err(template_not_found(name));
            };
            let profile = &template.data.iam_instance_profile.name;
            let is_known = state.profiles.get(profile).is_some_and(|stored| stored.known_at <= now);
            if !profile.is_empty() && !is_known {
                let message = format!("Value ({profile}) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name");
                return Err(ApiError::new("InvalidParameterValue", &message));
            }
            for interface in &request.network_interfaces {
                let Some(subnet) = state.account.subnets.get(&interface.subnet_id) else {
                    return Err(not_found("InvalidSubnetID.NotFound", "subnet ID", &interface.subnet_id));
                };
                if !state.catalogue.is_sold_in(&request.instance_type, &subnet.zone) {
                    return Err(unsupported(&request.instance_type, &subnet.zone));
                }
            }
            Err(dry_run())
        })
    }

    fn instances<'a>(&'a self, request: &'a InstancesRequest) -> AwsFuture<'a, Vec<Instance>> {
        self.call("DescribeInstances", move |state, now| {
            let ids = &request.instance_ids;
            let visible = |id: &String| {
                state
                    .machines
                    .get(id)
                    .is_some_and(|machine| machine.visible_at <= now)
            };
            if let Some(id) = ids.iter().find(|id| !visible(id)) {
                return Err(not_found("InvalidInstanceID.NotFound", "instance ID", id));
            }
            let machines = state
                .machines
                .values()
                .filter(|machine| machine.visible_at <= now);
            let named = machines.filter(|machine| ids.is_empty() || ids.contains(&machine.facts.id));
            let described: Vec<Instance> = named.map(|machine| machine.describe(now)).collect();
            kept(described.iter(), |instance| {
                matches(&request.filters, &instance.tags, |name| match name {
                    "instance-state-name" => one(&instance.state),
                    "instance-type" => one(&instance.instance_type),
                    "availability-zone" => one(&instance.zone),
                    _ => None,
                })
            })
        })
    }

    fn terminate_instances<'a>(&'a self, ids: &'a [String]) -> AwsFuture<'a, Vec<Terminated>> {
        self.call("TerminateInstances", move |state, now| {
            if let Some(id) = ids.iter().find(|id| !state.machines.contains_key(*id)) {
                return Err(not_found("InvalidInstanceID.NotFound", "instance ID", id));
            }
            let ended = ids.iter().map(|id| {
                state.end(id, "Client.UserInitiatedShutdown", now);
                Terminated {
                    id: id.clone(),
                    state: state.machines[id].state(now).to_owned(),
                }
            });
            Ok(ended.collect())
        })
    }

    fn create_tags<'a>(&'a self, request: &'a TagsRequest) -> AwsFuture<'a, ()> {
        self.call("CreateTags", move |state, _| {
            let ids = &request.resource_ids;
            if let Some(id) = ids.iter().find(|id| !state.machines.contains_key(*id)) {
                return Err(not_found("InvalidID", "ID", id));
            }
            for id in ids {
                if let Some(machine) = state.machines.get_mut(id) {
                    machine.facts.tags.extend(request.tags.0.clone());
                }
            }
            Ok(())
        })
    }

    fn instance_statuses<'a>(&'a self, filters: &'a [Filter]) -> AwsFuture<'a, Vec<InstanceStatus>> {
        self.call("DescribeInstanceStatus", move |state, now| {
            statuses(state, filters, now)
        })
    }
}

/// Code of the event that stands for planned maintenance.
const RETIREMENT: &str = "instance-retirement";

fn statuses(state: &State, filters: &[Filter], now: Timestamp) -> Result<Vec<InstanceStatus>, ApiError> {
    let mut found = Vec::new();
    let running = state
        .living()
        .filter(|machine| machine.state(now) == "running" && machine.visible_at <= now);
    for machine in running {
        let detail = |check| {
            let since = machine.impaired.get(&check).copied();
            StatusDetail {
                name: "reachability".to_owned(),
                status: if since.is_some() { "failed" } else { "passed" }.to_owned(),
                impaired_since: since,
            }
        };
        let word = |check| {
            one(if machine.impaired.contains_key(&check) {
                "impaired"
            } else {
                "ok"
            })
        };
        let is_asked = matches(filters, &Tags::new(), |name| match name {
            "instance-status.status" => word(Check::Instance),
            "system-status.status" => word(Check::System),
            "event.code" => Some(
                machine
                    .maintenance
                    .iter()
                    .map(|_| RETIREMENT.to_owned())
                    .collect(),
            ),
            _ => None,
        })?;
        if is_asked {
            let event = machine.maintenance.map(|at| ScheduledEvent {
                code: RETIREMENT.to_owned(),
                description: "The instance is running on degraded hardware".to_owned(),
                not_before: Some(at),
            });
            found.push(InstanceStatus {
                id: machine.facts.id.clone(),
                instance: vec![detail(Check::Instance)],
                system: vec![detail(Check::System)],
                events: event.into_iter().collect(),
            });
        }
    }
    Ok(found)
}
