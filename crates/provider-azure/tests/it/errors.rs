//! The table of ARM's errors (Z-036), and what is left out after them.

use jiff::SignedDuration;
use serde_json::json;
use spokeshave_model::CapacityType;
use spokeshave_model::CapacityType::{OnDemand, Spot};
use spokeshave_provider_azure::errors::{ArmError, Attempt, Verdict, launch_failure};
use spokeshave_provider_azure::offerings::Quota;
use spokeshave_provider_azure::unavailable::{Mark, Reach, USUALLY, Unavailable};

use crate::{at, class, types, types_with};

const QUOTA: &str = "Operation could not be completed as it results in exceeding approved";
const MORE: &str = "Submit a request for Quota increase at https://aka.ms/ProdportalCRP";

/// What offerings of Standard_D16s_v5 and its neighbours are left out after an error, and for how many minutes: `size capacity zone`.
fn left_out(
    code: &str,
    message: &str,
    zone: &str,
    capacity_type: CapacityType,
) -> (String, Vec<String>, Option<i64>) {
    let all = types(&class("{}"));
    let instance_type = all.iter().find(|it| it.name == "Standard_D16s_v5").unwrap();
    let attempt = Attempt {
        instance_type,
        family: "standardDSv5Family",
        cpus: 16,
        zone,
        capacity_type,
    };
    let failure = launch_failure(&ArmError::new(code, message), &attempt).unwrap();
    let verdict = match &failure.verdict {
        Verdict::InsufficientCapacity(message) => format!("none: {message}"),
        Verdict::Failed { reason, message } => {
            assert!(!message.is_empty());
            (*reason).to_owned()
        }
    };
    let mut unavailable = Unavailable::default();
    for mark in &failure.marks {
        unavailable.mark(mark, at(0));
    }
    let after = types_with(&class("{}"), &unavailable, &Quota::default());
    let mut gone = Vec::new();
    for (before, after) in all.iter().zip(&after) {
        for (before, after) in before.offerings.iter().zip(&after.offerings) {
            if before.available && !after.available {
                let name = after.requirements.find("karpenter.sh/capacity-type").unwrap();
                gone.push(format!("{name} {}", after.zone().unwrap()));
            }
        }
    }
    gone.sort();
    gone.dedup();
    let minutes = unavailable
        .next_end()
        .map(|end| end.duration_since(at(0)).as_mins());
    (verdict, gone, minutes)
}

/// Short form of what [`left_out`] says: sizes do not matter, `O` and `S` with their zones.
fn short(
    code: &str,
    message: &str,
    zone: &str,
    capacity_type: CapacityType,
) -> (String, String, Option<i64>) {
    let (verdict, gone, minutes) = left_out(code, message, zone, capacity_type);
    let zones: Vec<String> = gone
        .iter()
        .map(|it| {
            let letter = if it.contains("spot") { 'S' } else { 'O' };
            format!("{letter}{}", it.rsplit([' ', '-']).next().unwrap())
        })
        .collect();
    (verdict, zones.join(" "), minutes)
}

#[test]
fn z_036_what_each_error_leaves_out_and_for_how_long() {
    let family = |limit: i64| {
        format!(
            "{QUOTA} standardDSv5Family Family Cores quota. Additional details - Deployment Model: Resource Manager, Location: southcentralus, Current Limit: {limit}, Current Usage: {limit}. {MORE}"
        )
    };
    let low = format!("{QUOTA} LowPriorityCores quota. Current Limit: 3. {MORE}");
    let other = format!("{QUOTA} something else. {MORE}");
    let (one, none) = ("southcentralus-1", "0");
    let denied = "OperationNotAllowed";
    for (code, message, zone, capacity_type, reason, zones, minutes) in [
        (
            denied,
            low.as_str(),
            one,
            Spot,
            "SubscriptionQuotaReached",
            "S0 S1 S2 S3",
            60,
        ),
        (
            denied,
            &family(10),
            one,
            OnDemand,
            "SubscriptionQuotaReached",
            "O0 O1 O2 O3",
            10,
        ),
        (
            denied,
            &family(0),
            one,
            OnDemand,
            "SubscriptionQuotaReached",
            "O0 O1 O2 O3",
            60,
        ),
        (
            denied,
            &other,
            one,
            OnDemand,
            "SubscriptionQuotaReached",
            "O0 O1 O2 O3",
            60,
        ),
        (
            "ZonalAllocationFailed",
            "",
            one,
            OnDemand,
            "ZonalAllocationFailure",
            "O1 S1",
            60,
        ),
        (
            "AllocationFailed",
            "",
            one,
            OnDemand,
            "AllocationFailure",
            "O1 O2 O3 S1 S2 S3",
            60,
        ),
        (
            "AllocationFailed",
            "",
            none,
            OnDemand,
            "AllocationFailure",
            "O0 S0",
            60,
        ),
        (
            "OverconstrainedZonalAllocationRequest",
            "",
            one,
            Spot,
            "OverconstrainedZonalAllocationFailure",
            "S1",
            60,
        ),
        (
            "OverconstrainedAllocationRequest",
            "",
            one,
            Spot,
            "OverconstrainedAllocationFailure",
            "S1 S2 S3",
            60,
        ),
        (
            "SkuNotAvailable",
            "",
            one,
            Spot,
            "SKUNotAvailable",
            "S1 S2 S3",
            60,
        ),
        (
            "SkuNotAvailable",
            "",
            one,
            OnDemand,
            "SKUNotAvailable",
            "O1 O2 O3",
            23 * 60,
        ),
    ] {
        let found = short(code, message, zone, capacity_type);
        assert_eq!(
            found,
            (reason.to_owned(), zones.to_owned(), Some(minutes)),
            "{code} {message}"
        );
    }
}

#[test]
fn z_036_regional_quota_is_insufficient_capacity() {
    let message = format!("{QUOTA} Total Regional Cores quota. {MORE}");
    let (verdict, gone, minutes) = left_out("OperationNotAllowed", &message, "0", OnDemand);
    assert!(
        verdict.starts_with("none: the subscription's regional quota"),
        "{verdict}"
    );
    assert_eq!((gone.len(), minutes), (0, None));
    let (verdict, gone, _) = left_out("InsufficientSubnetSize", "10.0.0.0/24", "0", OnDemand);
    assert_eq!((verdict.as_str(), gone.len()), ("InsufficientSubnetSize", 0));
}

#[test]
fn z_036_what_says_nothing_of_capacity_leaves_nothing_out() {
    let all = types(&class("{}"));
    let attempt = Attempt {
        instance_type: &all[0],
        family: "",
        cpus: 2,
        zone: "0",
        capacity_type: OnDemand,
    };
    for (code, message) in [
        ("OperationNotAllowed", "The resource is locked."),
        ("AuthorizationFailed", ""),
        ("NicReservedForAnotherVm", ""),
        ("", "connection reset"),
    ] {
        assert_eq!(
            launch_failure(&ArmError::new(code, message), &attempt),
            None,
            "{code}"
        );
    }
}

#[test]
fn z_036_larger_sizes_of_the_family_go_too() {
    let mark = |cpus: i64, minutes: i64| Mark {
        reach: Reach::Family {
            family: "standardDSv5Family".to_owned(),
            size: format!("Standard_D{cpus}s_v5"),
            cpus,
            zones: vec!["z".to_owned()],
            capacity_types: vec![OnDemand],
        },
        lasts: SignedDuration::from_mins(minutes),
    };
    let mut unavailable = Unavailable::default();
    let contains = |unavailable: &Unavailable, cpus: i64, seconds: i64| {
        unavailable.contains(("STANDARDDSV5FAMILY", "x", cpus), "z", OnDemand, at(seconds))
    };
    let version = unavailable.version();
    unavailable.mark(&mark(16, 10), at(0));
    assert_ne!(unavailable.version(), version);
    assert!(contains(&unavailable, 16, 599) && contains(&unavailable, 96, 0));
    assert!(!contains(&unavailable, 8, 0) && !contains(&unavailable, 16, 600));
    let version = unavailable.version();
    unavailable.mark(&mark(32, 60), at(0));
    assert_eq!(unavailable.version(), version, "it is only longer");
    assert!(
        contains(&unavailable, 16, 599)
            && !contains(&unavailable, 16, 600)
            && contains(&unavailable, 32, 3599),
        "a later mark makes it neither narrower, nor the smaller size end later"
    );
    unavailable.mark(&mark(4, 1), at(0));
    assert_ne!(unavailable.version(), version);
    assert!(
        contains(&unavailable, 4, 59) && !contains(&unavailable, 4, 60) && contains(&unavailable, 16, 60)
    );
    assert!(!unavailable.contains(("standardDSv5Family", "x", 16), "y", OnDemand, at(0)));
    assert!(!unavailable.contains(("standardDSv5Family", "x", 16), "z", Spot, at(0)));
    for end in [60, 600, 3600] {
        let version = unavailable.version();
        assert_eq!(unavailable.next_end(), Some(at(end)));
        assert!(!unavailable.expire(at(end - 1)) && unavailable.expire(at(end)));
        assert_ne!(unavailable.version(), version, "what is over is for sale again");
    }
    assert_eq!(unavailable.next_end(), None);
    assert_eq!(USUALLY, SignedDuration::from_mins(3));
}

#[test]
fn z_036_errors_of_replies() {
    let read = |status, body: &str| ArmError::read(status, body.as_bytes());
    let error = read(
        409,
        r#"{"error": {"code": "OperationNotAllowed", "message": "no", "target": "x"}}"#,
    );
    assert_eq!(error.to_string(), "HTTP 409, OperationNotAllowed: no");
    let wrapped = read(
        200,
        r#"{"status": "Failed", "error": {"code": "DeploymentFailed", "message": "see below", "details": [{"code": "AllocationFailed", "message": "full"}]}}"#,
    );
    assert_eq!(
        (wrapped.code.as_str(), wrapped.message.as_str()),
        ("AllocationFailed", "full")
    );
    // AKS answers some requests without an envelope; what is no error of ARM's is shown as it came.
    let bare = read(
        400,
        r#"{"code": "InvalidParameter", "details": null, "message": "no such pool", "subcode": ""}"#,
    );
    assert_eq!(bare.to_string(), "HTTP 400, InvalidParameter: no such pool");
    assert_eq!(
        read(400, r#"{"message": "x"}"#).to_string(),
        r#"HTTP 400: {"message": "x"}"#
    );
    assert!(read(429, "").is_throttled() && ArmError::new("TooManyRequests", "").is_throttled());
    // About one resource, and not about how many calls there are.
    for code in [
        "AnotherOperationInProgress",
        "ReferencedResourceNotProvisioned",
        "RetryableError",
        "RetryableErrorDueToAnotherOperation",
    ] {
        let busy = read(429, &format!(r#"{{"error": {{"code": "{code}"}}}}"#));
        assert!(busy.is_busy() && !busy.is_throttled(), "{busy}");
    }
    assert!(!read(429, "").is_busy());
    assert!(read(401, "").is_unauthorized() && read(403, "{}").is_unauthorized());
    assert!(ArmError::new("NicReservedForAnotherVm", "").is_interface_reserved());
    let page = read(502, &"<html>".repeat(1000));
    assert_eq!((page.code.as_str(), page.message.len()), ("", 300));
    assert_eq!(read(500, "ä").to_string(), "HTTP 500: ä");
}

#[test]
fn z_040_what_aks_says_of_a_failure_has_a_code() {
    for (said, code, message) in [
        (
            json!({"code": "Outer", "message": "o", "details": [{"code": "Inner", "message": "i"}]}),
            "Inner",
            "i",
        ),
        (
            json!({"code": "Outer", "message": "o", "details": [{"message": "i"}]}),
            "Outer",
            "i",
        ),
        (
            json!({"code": "Outer", "message": "o", "details": []}),
            "Outer",
            "o",
        ),
        (json!({"message": "o"}), "ProvisioningFailed", "o"),
        (
            json!({}),
            "ProvisioningFailed",
            "AKS says that the machine has failed, and not why",
        ),
    ] {
        let error = ArmError::of_machine(&said);
        assert_eq!(
            (error.code.as_str(), error.message.as_str()),
            (code, message),
            "{said}"
        );
    }
}

#[test]
fn z_040_a_resource_group_that_is_not_found_is_no_resource_that_is_gone() {
    let error = |code: &str| {
        let body = json!({"error": {"code": code, "message": "x"}});
        ArmError::read(404, body.to_string().as_bytes()).is_not_found()
    };
    assert!(error("ResourceNotFound") && error("NotFound") && error(""));
    assert!(!error("ResourceGroupNotFound") && !error("SubscriptionNotFound"));
}
