//! Metrics with upstream's names (P §16, D App. D), as far as these controllers produce them.

use spokeshave_runtime::{
    Counter, Gauge, Histogram, Metrics, STANDARD_BUCKETS, Summary, exponential_buckets,
};

/// The families.
#[derive(Clone, Debug)]
pub(crate) struct ControllerFamilies {
    pub(crate) claims_created: Counter,
    pub(crate) claims_terminated: Counter,
    pub(crate) claims_disrupted: Counter,
    pub(crate) claims_unhealthy: Counter,
    pub(crate) pods_disruption_initiated: Counter,
    pub(crate) claims_termination_duration: Histogram,
    pub(crate) instance_termination_duration: Histogram,
    pub(crate) nodes_created: Counter,
    pub(crate) nodes_terminated: Counter,
    pub(crate) nodes_termination_duration: Summary,
    pub(crate) nodes_lifetime: Histogram,
    pub(crate) nodes_drained: Counter,
    pub(crate) pods_eviction_requests: Counter,
    pub(crate) pods_drained: Counter,
    pub(crate) pods_landed: Counter,
    pub(crate) scheduling_duration: Histogram,
    pub(crate) ignored_pods: Gauge,
    pub(crate) unschedulable_pods: Gauge,
    pub(crate) pods_by_effective_zone: Gauge,
    pub(crate) allowed_disruptions: Gauge,
    pub(crate) consuming_budgets: Gauge,
    pub(crate) eligible_nodes: Gauge,
    pub(crate) decisions: Counter,
    pub(crate) decisions_by_pool: Counter,
    pub(crate) consolidation_moves: Counter,
    pub(crate) consolidation_score: Histogram,
    pub(crate) failed_validations: Counter,
    pub(crate) queue_failures: Counter,
    pub(crate) evaluation_duration: Histogram,
    pub(crate) refused_commands: Counter,
    pub(crate) late_expirations: Gauge,
    pub(crate) cloud_duration: Histogram,
    pub(crate) cloud_errors: Counter,
    pub(crate) audit_violations: Counter,
    pub(crate) interruptions_received: Counter,
    pub(crate) interruptions_deleted: Counter,
    pub(crate) interruption_duration: Histogram,
    pub(crate) queue_depth: Gauge,
    pub(crate) unfinished_work: Gauge,
    pub(crate) cost_errors: Counter,
    pub(crate) snapshots_made: Counter,
    pub(crate) disruption_passes: Counter,
}

const DISRUPTED: [&str; 5] = [
    "reason",
    "nodepool",
    "capacity_type",
    "consolidation_policy",
    "termination_mode",
];

/// D-180.
const SCORE_BUCKETS: [f64; 8] = [0.1, 0.25, 0.33, 0.5, 1.0, 2.0, 5.0, 10.0];

/// D App. D: 15, 30 and 45 minutes, then hours, then days, in seconds.
fn lifetime_buckets() -> Vec<f64> {
    let minutes = [15, 30, 45].map(|minutes| minutes * 60);
    let hours = [1, 2, 4, 6, 8, 10, 12, 16, 20].map(|hours| hours * 3_600);
    let days = [1, 2, 3, 5, 10, 15, 20, 25, 30].map(|days| days * 86_400);
    let bounds = minutes.into_iter().chain(hours).chain(days);
    bounds.map(|seconds: u32| f64::from(seconds)).collect()
}

impl ControllerFamilies {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let counter = |name: &str, help: &str, labels: &[&str]| metrics.counter(name, help, labels);
        let gauge = |name: &str, help: &str, labels: &[&str]| metrics.gauge(name, help, labels);
        // Dashboards ask for it; there is no time-out that could be counted.
        let timeouts = counter(
            "karpenter_voluntary_disruption_consolidation_timeouts_total",
            "Always zero: every candidate is judged in every pass.",
            &["consolidation_type"],
        );
        timeouts.add(&["multi"], 0.0);
        timeouts.add(&["single"], 0.0);
        Self {
            snapshots_made: counter(
                "spokeshave_snapshots_made_total",
                "Snapshots of the cluster that were made from scratch. None is while only pods, nodes, NodeClaims and the status of other objects change.",
                &[],
            ),
            disruption_passes: counter(
                "spokeshave_voluntary_disruption_passes_total",
                "Passes of voluntary disruption, by cause: a change of what decisions read, or the refresh that follows after five minutes without one.",
                &["cause"],
            ),
            claims_created: counter(
                "karpenter_nodeclaims_created_total",
                "Number of nodeclaims created in total.",
                &["reason", "nodepool", "min_values_relaxed"],
            ),
            claims_terminated: counter(
                "karpenter_nodeclaims_terminated_total",
                "Number of nodeclaims terminated in total.",
                &["nodepool", "capacity_type", "zone"],
            ),
            claims_disrupted: counter(
                "karpenter_nodeclaims_disrupted_total",
                "Number of nodeclaims disrupted in total.",
                &DISRUPTED,
            ),
            claims_unhealthy: counter(
                "karpenter_nodeclaims_unhealthy_disrupted_total",
                "Number of unhealthy nodeclaims disrupted in total.",
                &["condition", "nodepool", "capacity_type", "image_id"],
            ),
            pods_disruption_initiated: counter(
                "karpenter_pods_disruption_initiated_total",
                "Number of reschedulable pods on disrupted nodeclaims.",
                &DISRUPTED,
            ),
            claims_termination_duration: metrics.histogram(
                "karpenter_nodeclaims_termination_duration_seconds",
                "Time from deletion to removal of the finalizer.",
                &["nodepool"],
                &exponential_buckets(1.0, 2.0, 12),
            ),
            instance_termination_duration: metrics.histogram(
                "karpenter_nodeclaims_instance_termination_duration_seconds",
                "Time from asking for the end of an instance to its end.",
                &["nodepool"],
                &exponential_buckets(1.0, 2.0, 11),
            ),
            nodes_created: counter(
                "karpenter_nodes_created_total",
                "Number of nodes created in total.",
                &["nodepool", "zone"],
            ),
            nodes_terminated: counter(
                "karpenter_nodes_terminated_total",
                "Number of nodes terminated in total.",
                &["nodepool", "zone"],
            ),
            nodes_termination_duration: metrics.summary(
                "karpenter_nodes_termination_duration_seconds",
                "Time from deletion of a node to its end.",
                &["nodepool"],
            ),
            nodes_lifetime: metrics.histogram(
                "karpenter_nodes_lifetime_duration_seconds",
                "Time from creation of a node to its end.",
                &["nodepool"],
                &lifetime_buckets(),
            ),
            nodes_drained: counter(
                "karpenter_nodes_drained_total",
                "Number of nodes drained in total.",
                &["nodepool"],
            ),
            pods_eviction_requests: counter(
                "karpenter_pods_eviction_requests_total",
                "Number of eviction requests by answer.",
                &["code"],
            ),
            pods_drained: counter(
                "karpenter_pods_drained_total",
                "Number of pods drained by reason.",
                &["reason"],
            ),
            pods_landed: counter(
                "spokeshave_pods_landed_total",
                "Pods that were planned onto a node and are bound, by whether it is the node that the last plan before that had for them: planned or elsewhere.",
                &["where"],
            ),
            scheduling_duration: metrics.histogram(
                "karpenter_scheduler_scheduling_duration_seconds",
                "Duration of scheduling simulations.",
                &["controller"],
                &STANDARD_BUCKETS,
            ),
            ignored_pods: gauge(
                "karpenter_scheduler_ignored_pods_count",
                "Pods that are ignored because they do not pass validation.",
                &[],
            ),
            unschedulable_pods: gauge(
                "karpenter_scheduler_unschedulable_pods_count",
                "Pods that could not be placed, or whose NodeClaims are held up: the cloud has refused such lately, or nodes came up in vain.",
                &["controller"],
            ),
            pods_by_effective_zone: gauge(
                "karpenter_scheduler_pending_pods_by_effective_zone_count",
                "Pending pods by the zone they can be in; flexible where several are possible, none where no zone is.",
                &["controller", "zone"],
            ),
            allowed_disruptions: gauge(
                "karpenter_nodepools_allowed_disruptions",
                "Nodes that may be disrupting at once by the budgets of the NodePool. DisruptionPolicies may allow fewer.",
                &["nodepool", "reason"],
            ),
            consuming_budgets: gauge(
                "karpenter_nodepools_nodes_consuming_budgets",
                "Nodes that consume the budgets.",
                &["nodepool", "reason"],
            ),
            eligible_nodes: gauge(
                "karpenter_voluntary_disruption_eligible_nodes",
                "Nodes eligible for disruption.",
                &["reason"],
            ),
            decisions: counter(
                "karpenter_voluntary_disruption_decisions_total",
                "Number of disruption decisions.",
                &["decision", "reason", "consolidation_type"],
            ),
            decisions_by_pool: counter(
                "karpenter_voluntary_disruption_decisions_by_nodepool_total",
                "Number of disruption decisions by nodepool.",
                &["nodepool", "decision", "reason", "consolidation_type"],
            ),
            consolidation_moves: counter(
                "karpenter_consolidation_moves_total",
                "Number of consolidations that were scored: approved, or not worth the disruption.",
                &["decision", "nodepool", "policy"],
            ),
            consolidation_score: metrics.histogram(
                "karpenter_consolidation_score",
                "Scores of consolidations of nodepools with policy Balanced; 0.5 is enough.",
                &["decision", "nodepool", "policy"],
                &SCORE_BUCKETS,
            ),
            failed_validations: counter(
                "karpenter_voluntary_disruption_failed_validations_total",
                "Number of candidates that fell out at validation.",
                &["consolidation_type"],
            ),
            queue_failures: counter(
                "karpenter_voluntary_disruption_queue_failures_total",
                "Number of replacements that were never initialized, so that their command was rolled back.",
                &["decision", "reason", "consolidation_type"],
            ),
            evaluation_duration: metrics.histogram(
                "karpenter_voluntary_disruption_decision_evaluation_duration_seconds",
                "Duration of the evaluation of a disruption method.",
                &["reason", "consolidation_type"],
                &STANDARD_BUCKETS,
            ),
            late_expirations: gauge(
                "spokeshave_disruption_policy_late_expirations",
                "Nodes that budgets and windows of a DisruptionPolicy do not let go before expireAfter takes them, as far as three days tell.",
                &["policy", "nodepool"],
            ),
            refused_commands: counter(
                "spokeshave_audit_refused_commands_total",
                "Disruption commands that an independent check refused; they were not started.",
                &["consolidation_type"],
            ),
            cloud_duration: metrics.histogram(
                "karpenter_cloudprovider_duration_seconds",
                "Duration of calls to the cloud.",
                &["controller", "method", "provider"],
                &spokeshave_runtime::DEFAULT_BUCKETS,
            ),
            cloud_errors: counter(
                "karpenter_cloudprovider_errors_total",
                "Number of errors of the cloud.",
                &["controller", "method", "provider", "error"],
            ),
            audit_violations: counter(
                "spokeshave_audit_violations_total",
                "Plans that an independent check refused; they were not carried out.",
                &[],
            ),
            interruptions_received: counter(
                "karpenter_interruption_received_messages_total",
                "Messages of the cloud about instances, by what they say.",
                &["message_type"],
            ),
            interruptions_deleted: counter(
                "karpenter_interruption_deleted_messages_total",
                "Messages of the cloud that were dealt with.",
                &[],
            ),
            interruption_duration: metrics.histogram(
                "karpenter_interruption_message_queue_duration_seconds",
                "Time from the arrival of a message to its end.",
                &[],
                &STANDARD_BUCKETS,
            ),
            queue_depth: gauge(
                "karpenter_scheduler_queue_depth",
                "Pods that a scheduling run has still to place.",
                &["controller", "scheduling_id"],
            ),
            unfinished_work: gauge(
                "karpenter_scheduler_unfinished_work_seconds",
                "For how long a scheduling run has been at work.",
                &["controller", "scheduling_id"],
            ),
            cost_errors: counter(
                "karpenter_nodepools_cost_tracker_errors_total",
                "Nodes whose price is not known, by nodepool.",
                &["nodepool"],
            ),
        }
    }
}
