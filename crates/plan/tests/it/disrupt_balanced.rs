//! Moves that are scored: what a balanced policy lets go, and who hears of it.

use crate::disrupt_methods::replaceable;
use crate::support::{World, acts, dollars, on_demand_pool, pinned, text};
use serde_json::json;
use spokeshave_api::ConsolidationPolicy;
use spokeshave_example::instance_type;
use spokeshave_plan::disrupt::{Method, validate};

pub(crate) fn balanced(pool: &mut spokeshave_api::NodePool) {
    pool.spec.disruption.consolidation_policy = ConsolidationPolicy::Balanced;
}

#[test]
fn d_176_emptiness_and_drift_are_not_scored() {
    let world = World::new(on_demand_pool("default"))
        .node("a", "small")
        .edit_pool("default", balanced);
    let outcome = world.pass();
    assert_eq!(text(&outcome.commands[0]), "Emptiness delete [a]");
    assert!(outcome.reports.iter().all(|report| report.scores.is_empty()));
    let drifted = replaceable().edit_pool("default", balanced).drifted("a", 0);
    let outcome = drifted.pass();
    assert_eq!(outcome.commands[0].method, Method::Drift);
    assert!(outcome.reports.iter().all(|report| report.scores.is_empty()));
}

#[test]
fn d_177_a_candidate_that_cannot_score_enough_even_as_a_delete() {
    let mut world = World::new(on_demand_pool("default"))
        .node("a", "small")
        .pod("p", "a", "1")
        .node("b", "small")
        .pod_with("r", "b", "100m", &pinned("b"))
        .edit_pool("default", balanced);
    for index in 0..30 {
        let name = format!("rich{index}");
        world = world.node(&name, "large");
        world = world.annotate_node(&name, "karpenter.sh/do-not-disrupt", "true");
    }
    assert_eq!(acts(&world), Vec::<String>::new());
    let verdict = world.verdict("a");
    assert!(
        verdict.blockers[0].message.starts_with("score 0."),
        "{:?}",
        verdict.blockers
    );
}

#[test]
fn d_178_d_179_d_180_d_181_w_40_approval_is_told_after_validation_and_every_scoring_is_reported() {
    let world = replaceable().edit_pool("default", balanced);
    let outcome = world.pass();
    let approvals = |events: &[spokeshave_model::Event]| {
        let approved = events
            .iter()
            .filter(|event| event.reason == "ConsolidationApproved");
        approved
            .map(|event| (event.object.name.clone(), event.message.clone()))
            .collect::<Vec<_>>()
    };
    let told_now = outcome.events.iter().map(|event| event.reason.as_str());
    assert_eq!(
        told_now
            .filter(|reason| *reason == "ConsolidationApproved")
            .count(),
        0,
        "it may still be rejected"
    );
    let second = validate(&outcome.commands[0], &world.snapshot(), &world.policy, world.now);
    let told = approvals(&second.events);
    let names: Vec<&str> = told.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a", "claim-a"]);
    assert_eq!(
        told[0].1,
        "score 0.75 >= threshold 0.50 (k: 2, savings 75.0%, disruption 100.0%)"
    );
    // What metrics and logs are made of (D-179…D-181).
    let score = &outcome.reports.last().expect("single").scores[0];
    assert_eq!(
        (score.pool.as_str(), score.policy.as_str()),
        ("default", "Balanced")
    );
    assert!(score.approved && (score.score() - 0.75).abs() < 1e-9);
    // What is not worth it is reported as well: a tenth of the price for all pods.
    let types = vec![
        instance_type("large", 16, 32, &["a"]),
        instance_type("lean", 16, 24, &["a"]),
    ];
    let poor = World::with_types(on_demand_pool("default"), types)
        .edit_pool("default", balanced)
        .node("a", "large")
        .pod("p", "a", "15");
    let outcome = poor.pass();
    assert!(outcome.commands.is_empty());
    let scores = &outcome.reports.last().expect("single").scores;
    assert_eq!(scores.len(), 1);
    assert!(
        !scores[0].approved && (scores[0].score() - 0.09375).abs() < 1e-9,
        "{scores:?}"
    );
    // Pools without policy Balanced are reported as approved, and tell nothing.
    let plain = replaceable();
    let outcome = plain.pass();
    let score = &outcome.reports.last().expect("single").scores[0];
    assert!(score.approved && score.policy == "WhenEmptyOrUnderutilized");
    let second = validate(&outcome.commands[0], &plain.snapshot(), &plain.policy, plain.now);
    assert_eq!(approvals(&second.events), []);
}

fn balanced_pool(disruption_price: &str, pods: usize) -> World {
    // Ten nodes at 1.00 (pool cost 10) with so many pods each; replacing one costs what is asked.
    let mut one = instance_type("one", 16, 32, &["a"]);
    let mut cheap = instance_type("cheap", 16, 32, &["a"]);
    for offering in &mut one.offerings {
        offering.price = dollars("1");
        offering.available = false;
    }
    for offering in &mut cheap.offerings {
        offering.price = dollars(disruption_price);
    }
    let mut pool = on_demand_pool("default");
    pool.spec.disruption.consolidation_policy = ConsolidationPolicy::Balanced;
    let mut world = World::with_types(pool, vec![one, cheap]);
    for index in 0..10 {
        let name = format!("n{index}");
        world = world.node(&name, "one");
        let count = if index == 0 { pods } else { 8 };
        for pod in 0..count {
            // Full, so that nothing fits elsewhere; only n0 has no anchors.
            let cpu = if pod == 0 {
                format!("{}m", 15_900 - 10 * (count - 1))
            } else {
                "10m".to_owned()
            };
            let spec = if index == 0 { json!({}) } else { pinned(&name) };
            world = world.pod_with(&format!("{name}-{pod}"), &name, &cpu, &spec);
        }
    }
    world
}

#[test]
fn d_173_balanced_worked_examples() {
    for (price, pods, approved) in [
        ("0.50", 8, true),
        ("0.51", 8, false),
        ("0.90", 1, false),
        ("0.85", 1, true),
    ] {
        let world = balanced_pool(price, pods);
        let outcome = world.pass();
        assert_eq!(
            outcome.commands.len(),
            usize::from(approved),
            "replace by {price}, {pods} pods: {:?}",
            outcome.reports
        );
        let verdict = world.verdict_text("n0");
        let expected = if approved {
            "replace by SingleNodeConsolidation"
        } else {
            "keep: Score NodePool default"
        };
        assert_eq!(verdict, expected, "replace by {price}, {pods} pods");
    }
    let outcome = balanced_pool("0.85", 1).pass();
    let score = &outcome.reports.last().expect("single").scores[0];
    assert_eq!(
        score.text(),
        "score 0.62 >= threshold 0.50 (k: 2, savings 1.5%, disruption 2.4%)"
    );
}
