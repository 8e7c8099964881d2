//! Every call of A13 that an emulator answers, once, over HTTP: what came back, and whether it is what it should be.
//!
//! ```sh
//! AWS_ENDPOINT_URL=http://127.0.0.1:5000 AWS_REGION=us-west-2 AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b cargo run -p spokeshave-aws-http --example wire
//! ```
//!
//! It launches and ends instances: it is meant for an emulator such as moto, and refuses to run without `AWS_ENDPOINT_URL`. Ends with 1 when an answer
//! is not as expected.

use std::error::Error;

use spokeshave_aws_http::ec2::Ec2;
use spokeshave_aws_http::{CallError, Session, iam, load, sqs, ssm, sts};
use spokeshave_ports::{Entropy, TokioClock};
use spokeshave_provider_aws::requests::fleet::{
    LaunchTemplateConfig, LaunchTemplateReference, Override, TargetCapacity,
};
use spokeshave_provider_aws::requests::launch_template::InstanceProfileName;
use spokeshave_provider_aws::requests::look_up::{
    FilterRequest, ImagesRequest, InstancesRequest, LaunchTemplatesRequest, TagsRequest,
};
use spokeshave_provider_aws::requests::{
    Filter, FleetRequest, LaunchTemplateData, LaunchTemplateRequest, ResourceType, RunInstancesRequest, Tags,
    tag_specifications,
};

/// Checks of what came back.
#[derive(Default)]
struct Checks {
    failed: u32,
}

impl Checks {
    fn check(&mut self, what: &str, is_right: bool, seen: impl std::fmt::Debug) {
        println!("{} {what}: {seen:?}", if is_right { "ok  " } else { "FAIL" });
        self.failed += u32::from(!is_right);
    }

    fn code<T>(&mut self, what: &str, expected: &str, result: &Result<T, CallError>) {
        let code = result.as_ref().err().map_or("no error", CallError::code);
        self.check(what, code == expected, code);
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    #[expect(clippy::disallowed_methods, reason = "an example is its own binary")]
    let endpoint = std::env::var("AWS_ENDPOINT_URL");
    if endpoint.is_err() {
        return Err("set AWS_ENDPOINT_URL to an emulator: this launches instances".into());
    }
    let session = load(
        None,
        "spokeshave-wire",
        TokioClock::wall(1.0).shared(),
        &Entropy::new(1),
    )
    .await?;
    let mut checks = Checks::default();
    let identity = sts::caller_identity(&session).await?;
    checks.check("GetCallerIdentity", !identity.account.is_empty(), &identity);
    describe(&session, &mut checks).await?;
    launch(&session, &mut checks).await?;
    profiles(&session, &mut checks).await?;
    let missing = sqs::queue_url(&session, "no-such-queue").await;
    checks.check(
        "GetQueueUrl of a missing queue",
        missing.is_err(),
        missing.err().map(|error| error.code().to_owned()),
    );
    let missing = ssm::parameter(&session, "/no/such").await;
    checks.code(
        "GetParameter of a missing parameter",
        "ParameterNotFound",
        &missing,
    );
    if checks.failed > 0 {
        return Err(format!("{} checks failed", checks.failed).into());
    }
    Ok(())
}

async fn describe(session: &Session, checks: &mut Checks) -> Result<(), CallError> {
    let ec2 = Ec2::new(session.clone());
    let types = ec2
        .instance_types(&[Filter::new("supported-virtualization-type", ["hvm"])])
        .await?;
    let m5 = types.iter().find(|one| one.instance_type == "m5.large");
    let described = m5.map(|m5| {
        (
            m5.v_cpu_info.default_vcpus,
            m5.memory_info.size_mib,
            m5.network_info.network_cards.len(),
        )
    });
    checks.check(
        "DescribeInstanceTypes",
        described == Some((2, 8192, 1)),
        (types.len(), described),
    );
    let offerings = ec2.instance_type_offerings().await?;
    let zones = offerings.iter().filter(|(name, _)| name == "m5.large").count();
    checks.check(
        "DescribeInstanceTypeOfferings",
        zones > 1,
        (offerings.len(), zones),
    );
    let prices = ec2.spot_prices(jiff::Timestamp::UNIX_EPOCH).await?;
    checks.check("DescribeSpotPriceHistory", prices.len() > 1000, prices.first());
    let groups = ec2.security_groups(&FilterRequest::default()).await?;
    checks.check(
        "DescribeSecurityGroups",
        groups.iter().any(|group| group.name == "default"),
        groups.len(),
    );
    Ok(())
}

async fn launch(session: &Session, checks: &mut Checks) -> Result<(), CallError> {
    let ec2 = Ec2::new(session.clone());
    let subnets = ec2.subnets(&FilterRequest::default()).await?;
    checks.check(
        "DescribeSubnets",
        subnets
            .iter()
            .all(|one| one.free_addresses > 0 && !one.zone.is_empty()),
        subnets.len(),
    );
    let images = ImagesRequest {
        filters: vec![
            Filter::new("architecture", ["x86_64"]),
            Filter::new("state", ["available"]),
        ],
        owners: vec!["amazon".to_owned()],
        include_deprecated: true,
    };
    let images = ec2.images(&images).await?;
    checks.check(
        "DescribeImages",
        images.iter().all(|one| one.architecture == "x86_64"),
        images.len(),
    );
    let (Some(subnet), Some(image)) = (subnets.first(), images.first()) else {
        checks.check("a subnet and an image to launch with", false, ());
        return Ok(());
    };
    let tags: Tags = [("karpenter.sh/nodepool".to_owned(), "wire & more".to_owned())]
        .into_iter()
        .collect();
    let template = LaunchTemplateRequest {
        launch_template_name: "karpenter.k8s.aws/1".to_owned(),
        launch_template_data: LaunchTemplateData {
            image_id: image.id.clone(),
            user_data: "#!/bin/sh\necho ä\n".to_owned(),
            iam_instance_profile: InstanceProfileName {
                name: "profile".to_owned(),
            },
            ..LaunchTemplateData::default()
        },
        tag_specifications: tag_specifications(&[ResourceType::LaunchTemplate], &tags),
    };
    let created = ec2.create_launch_template(&template).await?;
    checks.check(
        "CreateLaunchTemplate",
        created.name == template.launch_template_name,
        &created,
    );
    let again = ec2.create_launch_template(&template).await;
    checks.code(
        "CreateLaunchTemplate again",
        "InvalidLaunchTemplateName.AlreadyExistsException",
        &again,
    );
    let by_name = LaunchTemplatesRequest {
        launch_template_names: vec![template.launch_template_name.clone()],
        ..LaunchTemplatesRequest::default()
    };
    let found = ec2.launch_templates(&by_name).await?;
    checks.check(
        "DescribeLaunchTemplates",
        found.len() == 1 && found[0].id == created.id,
        &found,
    );
    let fleet = FleetRequest {
        type_: "instant".to_owned(),
        launch_template_configs: vec![LaunchTemplateConfig {
            launch_template_specification: LaunchTemplateReference::latest(&template.launch_template_name),
            overrides: vec![Override {
                instance_type: "m5.large".to_owned(),
                subnet_id: subnet.id.clone(),
                availability_zone: subnet.zone.clone(),
                image_id: image.id.clone(),
                ..Override::default()
            }],
        }],
        target_capacity_specification: TargetCapacity {
            default_target_capacity_type: "on-demand".to_owned(),
            total_target_capacity: 3,
        },
        tag_specifications: tag_specifications(&[ResourceType::Instance, ResourceType::Fleet], &tags),
        ..FleetRequest::default()
    };
    let rehearsed = ec2
        .create_fleet(&FleetRequest {
            dry_run: true,
            ..fleet.clone()
        })
        .await;
    checks.code("CreateFleet as a rehearsal", "DryRunOperation", &rehearsed);
    let rehearsal = RunInstancesRequest {
        dry_run: true,
        min_count: 1,
        max_count: 1,
        launch_template: LaunchTemplateReference::latest(&template.launch_template_name),
        instance_type: "m5.large".to_owned(),
        ..RunInstancesRequest::default()
    };
    let rehearsed = ec2.rehearse_run_instances(&rehearsal).await;
    checks.code("RunInstances as a rehearsal", "DryRunOperation", &rehearsed);
    let reply = ec2.create_fleet(&fleet).await?;
    let placed = reply
        .launched
        .iter()
        .all(|one| one.place.instance_type == "m5.large" && one.place.zone == subnet.zone);
    checks.check(
        "CreateFleet",
        reply.launched.len() == 3 && placed && reply.errors.is_empty(),
        &reply.launched,
    );
    let ids: Vec<String> = reply.launched.iter().map(|one| one.instance_id.clone()).collect();
    instances(&ec2, &ids, checks).await?;
    ec2.delete_launch_template(&created.id).await?;
    let gone = ec2.launch_templates(&by_name).await;
    checks.code(
        "DescribeLaunchTemplates afterwards",
        "InvalidLaunchTemplateName.NotFoundException",
        &gone,
    );
    Ok(())
}

async fn instances(ec2: &Ec2, ids: &[String], checks: &mut Checks) -> Result<(), CallError> {
    let ours = InstancesRequest {
        filters: vec![
            Filter::tag("karpenter.sh/nodepool", "wire & more"),
            Filter::new("instance-state-name", ["pending", "running"]),
        ],
        ..InstancesRequest::default()
    };
    let found = ec2.instances(&ours).await?;
    let known = found
        .iter()
        .all(|one| ids.contains(&one.id) && one.launched_at.is_some() && !one.zone.is_empty());
    checks.check(
        "DescribeInstances",
        found.len() == ids.len() && known,
        found.first(),
    );
    let tags = TagsRequest {
        resource_ids: ids.iter().take(1).cloned().collect(),
        tags: [("Name".to_owned(), "node".to_owned())].into_iter().collect(),
    };
    ec2.create_tags(&tags).await?;
    let one = InstancesRequest {
        instance_ids: tags.resource_ids.clone(),
        ..InstancesRequest::default()
    };
    let named = ec2.instances(&one).await?;
    let name = named.first().and_then(|one| one.tags.get("Name").cloned());
    checks.check("CreateTags", name.as_deref() == Some("node"), name);
    let statuses = ec2.instance_statuses(&[]).await?;
    checks.check(
        "DescribeInstanceStatus",
        statuses.iter().any(|one| ids.contains(&one.id)),
        statuses.first(),
    );
    let ended = ec2.terminate_instances(ids).await?;
    let ends = ended
        .iter()
        .all(|one| matches!(one.state.as_str(), "shutting-down" | "terminated"));
    checks.check("TerminateInstances", ended.len() == ids.len() && ends, &ended);
    let unknown = ec2.terminate_instances(&["i-0123456789abcdef0".to_owned()]).await;
    checks.code(
        "TerminateInstances of an unknown instance",
        "InvalidInstanceID.NotFound",
        &unknown,
    );
    Ok(())
}

async fn profiles(session: &Session, checks: &mut Checks) -> Result<(), CallError> {
    let (name, path) = ("wire_1", "/karpenter/us-west-2/wire/1/");
    let tags = [("a b".to_owned(), "c&d".to_owned())].into_iter().collect();
    iam::create_profile(session, name, path, &tags).await?;
    let again = iam::create_profile(session, name, path, &tags).await;
    checks.code("CreateInstanceProfile again", "EntityAlreadyExists", &again);
    let profile = iam::get_profile(session, name).await?;
    checks.check(
        "GetInstanceProfile",
        profile.path == path && profile.tags == tags,
        &profile,
    );
    let missing_role = iam::add_role(session, name, "no-such-role").await;
    checks.code(
        "AddRoleToInstanceProfile of a missing role",
        "NoSuchEntity",
        &missing_role,
    );
    let listed = iam::list_profiles(session, "/karpenter/us-west-2/wire/").await?;
    checks.check("ListInstanceProfiles", listed.len() == 1, listed.len());
    iam::delete_profile(session, name).await?;
    let gone = iam::get_profile(session, name).await;
    checks.code("GetInstanceProfile afterwards", "NoSuchEntity", &gone);
    Ok(())
}
