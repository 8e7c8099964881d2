//! classes and reasons of errors.

use spokeshave_provider_aws::errors::{ApiError, launch_reason, steady};

use crate::oracle;

#[test]
fn a_078_every_code_has_the_class_and_the_reason_that_upstream_gives_it() {
    let expected = oracle::json("expected/errors.json");
    let mut more = Vec::new();
    for row in oracle::list(&expected, "errors") {
        let mut error = ApiError::new(
            row["code"].as_str().unwrap(),
            row["message"].as_str().unwrap_or_default(),
        );
        error.server_fault = row["fault"] == "server";
        let reason = launch_reason(&error);
        assert_eq!(reason.0, row["reason"], "{error}");
        assert_eq!(reason.1, row["reason_message"], "{error}");
        for (class, ours) in classes(&error) {
            let theirs = ["classes", "fleet_classes"]
                .iter()
                .any(|field| oracle::list(row, field).iter().any(|name| name == class));
            if ours && !theirs {
                more.push(format!("{} {class}", error.code));
            } else {
                assert_eq!(ours, theirs, "{error}: {class}");
            }
        }
    }
    more.sort();
    let listed: Vec<String> = oracle::differences("errors").into_keys().collect();
    assert_eq!(more, listed);
}

/// AWS says which policy refuses: that is the one to be changed, and the action that it names is the one to be allowed.
#[test]
fn a_078_a_122_the_advice_about_a_denied_call_names_action_and_policy() {
    let user = "User: arn:aws:sts::111122223333:assumed-role/a/b is not authorized to perform:";
    let advice = |message: &str| ApiError::new("UnauthorizedOperation", message).advice("ec2:CreateFleet");
    let in_ours = |action: &str| {
        format!(
            "; allow {action} in the policy of the operator's role (deploy/aws/controller-policy.json has all that it needs)"
        )
    };
    assert_eq!(
        advice("You are not authorized to perform this operation."),
        in_ours("ec2:CreateFleet")
    );
    let within = format!(
        "{user} iam:PassRole on resource: arn:x because no identity-based policy allows the iam:PassRole action"
    );
    assert_eq!(advice(&within), in_ours("iam:PassRole"));
    for (text, policy) in [
        (
            "with an explicit deny in a service control policy",
            "a service control policy of the organization",
        ),
        (
            "because no service control policy allows the ec2:RunInstances action",
            "a service control policy of the organization",
        ),
        (
            "with an explicit deny in a resource control policy",
            "a resource control policy of the organization",
        ),
        (
            "because no permissions boundary allows the ec2:RunInstances action",
            "the permissions boundary",
        ),
        (
            "with an explicit deny in a permissions boundary",
            "the permissions boundary",
        ),
        (
            "because no VPC endpoint policy allows the ec2:RunInstances action",
            "the policy of the VPC endpoint",
        ),
        (
            "because no session policy allows the ec2:RunInstances action",
            "the session policy",
        ),
        (
            "with an explicit deny in an identity-based policy",
            "a policy of its own",
        ),
    ] {
        let said = advice(&format!("{user} ec2:RunInstances on resource: * {text}"));
        assert_eq!(
            said,
            format!("; {policy} denies ec2:RunInstances to the operator's role: have it changed there")
        );
    }
    let keys = ApiError::new(
        "AuthFailure",
        "AWS was not able to validate the provided access credentials",
    );
    assert!(
        keys.advice("ec2:CreateFleet")
            .contains("check the operator's credentials")
    );
    assert_eq!(ApiError::new("InternalError", "no").advice("ec2:CreateFleet"), "");
}

#[test]
fn a_122_what_differs_with_each_attempt_is_left_out_of_events() {
    let text = |id: &str, encoded: &str| {
        format!(
            "ec2:CreateFleet: UnauthorizedOperation: no. Encoded authorization failure message: {encoded} (request {id}); allow it"
        )
    };
    assert_eq!(steady(&text("1-2", "aB_9-x")), steady(&text("3-4", "zZ")));
    assert_eq!(
        steady(&text("1-2", "aB_9-x")),
        "ec2:CreateFleet: UnauthorizedOperation: no.; allow it"
    );
    assert_eq!(steady("nothing of the kind"), "nothing of the kind");
}

fn classes(error: &ApiError) -> [(&'static str, bool); 14] {
    [
        ("not_found", error.is_not_found()),
        ("launch_template_not_found", error.is_launch_template_not_found()),
        ("already_exists", error.is_already_exists()),
        ("dry_run", error.is_dry_run()),
        ("unauthorized", error.is_unauthorized()),
        ("rate_limited", error.is_rate_limited()),
        ("server_error", error.is_server_error()),
        (
            "instance_profile_not_found",
            error.is_instance_profile_not_found(),
        ),
        ("user_data_too_large", error.is_user_data_too_large()),
        ("unfulfillable_capacity", error.is_unfulfillable_capacity()),
        (
            "insufficient_free_addresses",
            error.is_insufficient_free_addresses(),
        ),
        (
            "reservation_capacity_exceeded",
            error.is_reservation_capacity_exceeded(),
        ),
        (
            "service_linked_role_missing",
            error.is_service_linked_role_missing(),
        ),
        (
            "spread_placement_group_full",
            error.is_spread_placement_group_full(),
        ),
    ]
}
