//! classes and reasons of errors.

use spokeshave_provider_aws::errors::{ApiError, launch_reason};

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
