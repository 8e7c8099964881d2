//! which type is rehearsed, and what answers of dry runs mean.

use serde_json::json;
use spokeshave_api::EC2NodeClass;
use spokeshave_api::ec2_node_class::{Ami, EC2NodeClassStatus};
use spokeshave_model::{CapacityType, InstanceType, Offering, Requirement, Requirements, labels};
use spokeshave_provider_aws::errors::ApiError;
use spokeshave_provider_aws::images::{Variant, requirements};
use spokeshave_provider_aws::labels::INSTANCE_GPU_COUNT;
use spokeshave_provider_aws::rehearsal::{Question, Verdict, choose, judge};

/// A type that is sold on demand, and available or not.
fn sold(name: &str, available: bool) -> InstanceType {
    let on_demand = Requirement::is(labels::CAPACITY_TYPE, CapacityType::OnDemand.as_str());
    InstanceType {
        name: name.to_owned(),
        requirements: [Requirement::is(labels::INSTANCE_TYPE, name)]
            .into_iter()
            .collect(),
        offerings: vec![Offering {
            requirements: [on_demand].into_iter().collect(),
            available,
            ..Offering::default()
        }],
        ..InstanceType::default()
    }
}

fn class() -> EC2NodeClass {
    let spec = json!({"amiFamily": "AL2023", "role": "nodes"});
    let mut class = EC2NodeClass::new("class", serde_json::from_value(spec).unwrap());
    class.status = Some(EC2NodeClassStatus {
        amis: vec![Ami {
            id: "ami-1".into(),
            ..Ami::default()
        }],
        ..EC2NodeClassStatus::default()
    });
    class
}

#[test]
fn a_035_a_type_that_the_class_cannot_launch_is_not_rehearsed_while_there_is_another() {
    let class = class();
    let chosen = |available: [bool; 2], pools: &[Requirements]| {
        let types = [sold("a1.large", available[0]), sold("c6g.large", available[1])];
        let choice = choose(&class, &types, pools).unwrap();
        choice.candidates[0].instance_type.name.clone()
    };
    let any = [Requirements::default()];
    assert_eq!(chosen([true, true], &any), "a1.large");
    assert_eq!(chosen([false, true], &any), "c6g.large");
    assert_eq!(chosen([false, true], &[]), "c6g.large", "also without NodePools");
    assert_eq!(
        chosen([false, false], &any),
        "a1.large",
        "a dry run takes no capacity"
    );
}

/// What the account may launch of the usual types says nothing of those that its NodePools want.
#[test]
fn a_035_what_node_pools_want_is_rehearsed_also_when_it_has_run_out() {
    let types = [sold("m5.large", true), sold("p5.48xlarge", false)];
    let chosen = |pools: &[Requirements]| {
        let choice = choose(&class(), &types, pools).unwrap();
        choice.candidates[0].instance_type.name.clone()
    };
    let wants = |name: &str| {
        let wanted = Requirement::is(labels::INSTANCE_TYPE, name);
        [[wanted].into_iter().collect::<Requirements>()]
    };
    assert_eq!(chosen(&wants("p5.48xlarge")), "p5.48xlarge");
    assert_eq!(
        chosen(&wants("p4d.24xlarge")),
        "m5.large",
        "no type is what it wants"
    );
    assert_eq!(chosen(&[]), "m5.large");
}

/// Images for accelerators may need larger volumes than others. What is left on spot says that the class can launch a type.
#[test]
fn a_035_an_ordinary_type_that_has_run_out_on_demand_is_rehearsed_rather_than_an_accelerator() {
    let mut class = class();
    let amis = [("ami-1", Variant::Standard), ("ami-2", Variant::Nvidia)];
    let amis = amis.map(|(id, variant)| Ami {
        id: id.into(),
        requirements: requirements("amd64", Some(variant)),
        ..Ami::default()
    });
    class.status.as_mut().unwrap().amis = amis.into();
    let chosen = |is_left_on_spot: bool| {
        let mut ordinary = sold("m5.large", false);
        let spot = Requirement::is(labels::CAPACITY_TYPE, CapacityType::Spot.as_str());
        ordinary.offerings.push(Offering {
            requirements: [spot].into_iter().collect(),
            available: is_left_on_spot,
            ..Offering::default()
        });
        let mut accelerator = sold("g5.xlarge", true);
        accelerator
            .requirements
            .add(Requirement::is(INSTANCE_GPU_COUNT, "1"));
        let types = [accelerator, ordinary];
        let choice = choose(&class, &types, &[Requirements::default()]).unwrap();
        choice.candidates[0].instance_type.name.clone()
    };
    assert_eq!(chosen(true), "m5.large");
    assert_eq!(
        chosen(false),
        "g5.xlarge",
        "the class may be unable to launch the other"
    );
}

#[test]
fn a_035_verdicts_of_dry_runs() {
    let error = |code: &str| ApiError::new(code, "text");
    let asked = |question, code| judge(question, Some(&error(code)));
    assert_eq!(asked(Question::CreateFleet, "DryRunOperation"), Verdict::Allowed);
    assert_eq!(judge(Question::RunInstances, None), Verdict::Allowed);
    for (question, reason) in [
        (
            Question::CreateLaunchTemplate,
            "CreateLaunchTemplateAuthCheckFailed",
        ),
        (Question::CreateFleet, "CreateFleetAuthCheckFailed"),
        (Question::RunInstances, "RunInstancesAuthCheckFailed"),
    ] {
        let Verdict::Refused {
            reason: actual,
            message,
        } = asked(question, "UnauthorizedOperation")
        else {
            panic!("{question:?}");
        };
        assert_eq!(actual, reason);
        let call = reason.trim_end_matches("AuthCheckFailed");
        assert!(
            message.starts_with(&format!("Controller isn't authorized to call ec2:{call}: ")),
            "{message}"
        );
        assert_eq!(asked(question, "RequestLimitExceeded"), Verdict::AskAgain);
        assert_eq!(
            asked(question, "InvalidParameter"),
            Verdict::Unexpected(error("InvalidParameter"))
        );
    }
    let mut fault = error("InternalError");
    fault.server_fault = true;
    assert_eq!(judge(Question::CreateFleet, Some(&fault)), Verdict::AskAgain);
}
