//! Repair policies by condition of the Node, and errors without a code.

use super::*;

#[test]
fn a_102_conditions_of_the_node_monitoring_agent_are_borne_half_an_hour_and_accelerators_ten_minutes() {
    let policies = repair_policies();
    // The list of A7.
    let mut expected = vec![
        ("Ready", "False", 30),
        ("Ready", "Unknown", 30),
        ("AcceleratedHardwareReady", "False", 10),
    ];
    let others = [
        "StorageReady",
        "NetworkingReady",
        "KernelReady",
        "ContainerRuntimeReady",
    ];
    expected.extend(others.map(|condition| (condition, "False", 30)));
    let mut said: Vec<_> = policies
        .iter()
        .map(|it| {
            (
                it.condition_type.as_str(),
                it.condition_status.as_str(),
                it.toleration.as_secs() / MINUTES,
            )
        })
        .collect();
    said.sort_unstable();
    expected.sort_unstable();
    assert_eq!(said, expected);
}

#[test]
fn an_error_without_a_code_is_no_answer() {
    assert!(matches!(
        cloud_error("ec2:DescribeInstances", &ApiError::new("", "no reply")),
        CloudError::Timeout(_)
    ));
    let denied = cloud_error(
        "ec2:DescribeInstances",
        &ApiError::new("UnauthorizedOperation", "no"),
    );
    let text = denied.to_string();
    assert!(
        text.starts_with(
            "ec2:DescribeInstances: UnauthorizedOperation: no; allow ec2:DescribeInstances in the policy"
        ),
        "{text}"
    );
}
