//! Whether EC2 would allow launches from a class: dry runs, and what their answers mean (A2.4, A-035).
//!
//! Owns which instance type is tried, what is asked, and the verdict. Callers ask each question once, without retries: an answer that is no
//! verdict is asked for again with the next reconciliation.

use std::collections::BTreeSet;

use spokeshave_api::EC2NodeClass;
use spokeshave_api::ec2_node_class::{Ami, AmiFamily};
use spokeshave_model::labels as core;
use spokeshave_model::{CapacityType, InstanceType, Offering, Requirement, Requirements};

use crate::choice::{Candidate, Choice};
use crate::errors::{ApiError, launch_reason};
use crate::images::{self, Variant};
use crate::labels;
use crate::launch::{Context, Template, empty_fleet};
use crate::requests::fleet::{
    LaunchTemplateConfig, LaunchTemplateReference, Override, RunInstancesRequest, SubnetInterface,
};
use crate::requests::{FleetRequest, ResourceType, tag_specifications};

/// Types that are tried where no NodePool says what will be launched: one of each architecture.
const FALLBACK_TYPES: [&str; 2] = ["m5.large", "m6g.large"];

/// The choice that is rehearsed: a type that a NodePool of the class could get, with the first image for ordinary machines where there is one,
/// because images for accelerators may need larger volumes. `pools` are the requirements of the class's NodePools.
#[must_use]
pub fn choose<'a>(
    class: &EC2NodeClass,
    types: &'a [InstanceType],
    pools: &[Requirements],
) -> Option<Choice<'a>> {
    let sold: Vec<&InstanceType> = types
        .iter()
        .filter(|instance_type| on_demand(instance_type).next().is_some())
        .collect();
    let wanted = of_pools(class, &sold, pools);
    let candidates = if wanted.is_empty() {
        let available = sold.iter().copied().filter(|one| is_available(one));
        let available: Vec<&InstanceType> = available.collect();
        [fallback(&available), fallback(&sold)].concat()
    } else {
        wanted
    };
    let instance_type = best(class, &candidates)?;
    let is_dedicated = pools.iter().any(|pool| {
        pool.find(labels::INSTANCE_TENANCY)
            .is_some_and(|tenancy| tenancy.has("dedicated"))
    });
    Some(Choice {
        capacity_type: CapacityType::OnDemand,
        tenancy: if is_dedicated { "dedicated" } else { "default" },
        candidates: vec![Candidate {
            instance_type,
            offerings: on_demand(instance_type).collect(),
        }],
        left_out: Default::default(),
        is_inflexible_fallback: false,
    })
}

fn on_demand(instance_type: &InstanceType) -> impl Iterator<Item = &Offering> {
    instance_type
        .offerings
        .iter()
        .filter(|offering| offering.capacity_type() == Some(CapacityType::OnDemand))
}

fn is_available(instance_type: &InstanceType) -> bool {
    on_demand(instance_type).any(|offering| offering.available)
}

/// Those of these types that NodePools of the class could get; none for Windows, which some of them are wrongly said to run.
fn of_pools<'a>(
    class: &EC2NodeClass,
    types: &[&'a InstanceType],
    pools: &[Requirements],
) -> Vec<&'a InstanceType> {
    let is_windows = matches!(
        class.resolved_ami_family(),
        AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025
    );
    if is_windows {
        return Vec::new();
    }
    let wanted = types.iter().copied().filter(|instance_type| {
        let mut pools = pools.iter();
        pools.any(|pool| instance_type.requirements.intersects(pool).is_ok())
    });
    wanted.collect()
}

/// Those of these types that stand for all.
fn fallback<'a>(types: &[&'a InstanceType]) -> Vec<&'a InstanceType> {
    let usual: Vec<&InstanceType> = types
        .iter()
        .copied()
        .filter(|instance_type| FALLBACK_TYPES.contains(&instance_type.name.as_str()))
        .collect();
    if usual.is_empty() { types.to_vec() } else { usual }
}

/// One for an ordinary image where there is one, and that has not run out. A dry run takes no capacity: what a NodePool wants stands for it also when it has run out.
/// But of what the class cannot launch, or not in its zones, no offering is available: such a type comes last.
fn best<'a>(class: &EC2NodeClass, candidates: &[&'a InstanceType]) -> Option<&'a InstanceType> {
    let amis = class.status.as_ref().map_or(&[][..], |status| &status.amis);
    let with_image = candidates.iter().filter_map(|instance_type| {
        let image = images::image_for(amis, &instance_type.requirements)?;
        let place = amis.iter().position(|ami| ami.id == image.id);
        let can_be_launched = instance_type.offerings.iter().any(|one| one.available);
        let has_run_out = !is_available(instance_type);
        let rank = (!can_be_launched, !is_ordinary(image), has_run_out, place);
        Some((rank, &instance_type.name, *instance_type))
    });
    with_image
        .min_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)))
        .map(|(.., instance_type)| instance_type)
}

/// Whether an image can be for machines without GPUs and accelerators.
fn is_ordinary(ami: &Ami) -> bool {
    let ordinary = images::requirements("", Some(Variant::Standard));
    let keys: BTreeSet<&str> = ordinary.iter().skip(1).map(|entry| entry.key.as_str()).collect();
    let read = |entries: &[spokeshave_api::Requirement]| -> Requirements {
        let entries = entries.iter().filter(|entry| keys.contains(entry.key.as_str()));
        entries
            .filter_map(|entry| Requirement::from_api(entry).ok())
            .collect()
    };
    read(&ordinary).intersects(&read(&ami.requirements)).is_ok()
}

/// The dry runs of a template: a fleet over all subnets, then an instance in each, first in those of zones that sell its type. `None` for a template
/// without types.
#[must_use]
pub fn requests(
    context: &Context<'_>,
    template: &Template<'_>,
) -> Option<(FleetRequest, Vec<RunInstancesRequest>)> {
    let sold = template.candidates.first()?.instance_type;
    let instance_type = &sold.name;
    let name = &template.request.launch_template_name;
    let subnets = context.class.status.iter().flat_map(|status| &status.subnets);
    let mut fleet = empty_fleet(CapacityType::OnDemand, false, context.tags);
    fleet.dry_run = true;
    let overrides = subnets.clone().map(|subnet| Override {
        instance_type: instance_type.clone(),
        subnet_id: subnet.id.clone(),
        ..Override::default()
    });
    fleet.launch_template_configs = vec![LaunchTemplateConfig {
        launch_template_specification: LaunchTemplateReference::latest(name),
        overrides: overrides.collect(),
    }];
    let tagged = [
        ResourceType::Instance,
        ResourceType::Volume,
        ResourceType::NetworkInterface,
    ];
    let zones = sold.requirements.find(core::ZONE);
    let mut subnets: Vec<_> = subnets.collect();
    subnets.sort_by_key(|subnet| !zones.is_some_and(|zones| zones.has(&subnet.zone)));
    let instances = subnets.into_iter().map(|subnet| RunInstancesRequest {
        dry_run: true,
        min_count: 1,
        max_count: 1,
        launch_template: LaunchTemplateReference::latest(name),
        instance_type: instance_type.clone(),
        network_interfaces: interfaces(context.class, &subnet.id),
        tag_specifications: tag_specifications(&tagged, context.tags),
    });
    Some((fleet, instances.collect()))
}

fn interfaces(class: &EC2NodeClass, subnet: &str) -> Vec<SubnetInterface> {
    let configured = &class.spec.network_interfaces;
    if configured.is_empty() {
        return vec![SubnetInterface {
            subnet_id: subnet.to_owned(),
            ..SubnetInterface::default()
        }];
    }
    let interfaces = configured.iter().map(|interface| SubnetInterface {
        network_card_index: Some(interface.network_card_index),
        device_index: interface.device_index,
        interface_type: Some(interface.interface_type.as_str().to_owned()),
        subnet_id: subnet.to_owned(),
    });
    interfaces.collect()
}

/// A question that EC2 answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// The launch template, which is made in earnest.
    CreateLaunchTemplate,
    /// The fleet.
    CreateFleet,
    /// An instance, in each subnet until one is allowed.
    RunInstances,
}

impl Question {
    /// The action as policies name it.
    #[must_use]
    pub fn action(self) -> &'static str {
        match self {
            Question::CreateLaunchTemplate => "ec2:CreateLaunchTemplate",
            Question::CreateFleet => "ec2:CreateFleet",
            Question::RunInstances => "ec2:RunInstances",
        }
    }

    fn refusal(self) -> &'static str {
        match self {
            Question::CreateLaunchTemplate => "CreateLaunchTemplateAuthCheckFailed",
            Question::CreateFleet => "CreateFleetAuthCheckFailed",
            Question::RunInstances => "RunInstancesAuthCheckFailed",
        }
    }
}

/// What an answer means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It would be allowed.
    Allowed,
    /// It would not: reason and message of condition `ValidationSucceeded`, which stand until something changes.
    Refused {
        /// Reason.
        reason: &'static str,
        /// Message.
        message: String,
    },
    /// No verdict: the service is busy, or does not yet know what was just made. Ask again.
    AskAgain,
    /// No verdict, and something else is wrong.
    Unexpected(ApiError),
}

/// What an answer means; `None` is success. Of several subnets the first one's answer counts, unless another one is allowed.
#[must_use]
pub fn judge(question: Question, answer: Option<&ApiError>) -> Verdict {
    let Some(error) = answer.filter(|error| !error.is_dry_run()) else {
        return Verdict::Allowed;
    };
    let is_profile_missing = question == Question::RunInstances && error.is_instance_profile_not_found();
    if error.is_rate_limited() || error.is_server_error() || is_profile_missing {
        return Verdict::AskAgain;
    }
    let (_, what) = launch_reason(error);
    if question == Question::CreateLaunchTemplate && error.is_user_data_too_large() {
        return Verdict::Refused {
            reason: "UserDataSizeLimitExceeded",
            message: format!("ec2:CreateLaunchTemplate rejected the rendered user data as too large: {what}"),
        };
    }
    if error.is_unauthorized() {
        return Verdict::Refused {
            reason: question.refusal(),
            message: format!(
                "Controller isn't authorized to call {}: {what}{}",
                question.action(),
                error.advice(question.action())
            ),
        };
    }
    Verdict::Unexpected(error.clone())
}
