//! Repair policies by condition of the Node, and errors without a code.

use super::*;

#[test]
fn a_102_conditions_of_the_node_monitoring_agent_are_borne_half_an_hour_and_accelerators_ten_minutes() {
    let policies = repair_policies();
    let minutes = |condition: &str, status: &str| {
        let found = policies
            .iter()
            .find(|it| it.condition_type == condition && it.condition_status == status);
        found.map(|policy| policy.toleration.as_secs() / MINUTES)
    };
    assert_eq!(minutes("Ready", "Unknown"), Some(30));
    assert_eq!(minutes("AcceleratedHardwareReady", "False"), Some(10));
    assert_eq!(minutes("AcceleratedHardwareReady", "Unknown"), None);
    assert_eq!(policies.len(), 7);
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
    assert_eq!(
        denied.to_string(),
        "ec2:DescribeInstances: UnauthorizedOperation: no"
    );
}
