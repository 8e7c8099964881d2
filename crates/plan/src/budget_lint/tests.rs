//! The linter of budgets, code by code, and that its suggestions do what they promise.

use super::*;
use serde_json::json;

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn pool(budgets: Value) -> Value {
    json!({"metadata": {"name": "default"}, "spec": {"disruption": {"budgets": budgets}}})
}

fn found(budgets: Value) -> Vec<(Level, &'static str, String)> {
    let findings = lint(&pool(budgets), None, now());
    findings
        .into_iter()
        .map(|finding| (finding.level, finding.code, finding.field))
        .collect()
}

fn only(budgets: Value, code: &str) -> Finding {
    let mut findings: Vec<Finding> = lint(&pool(budgets.clone()), None, now())
        .into_iter()
        .filter(|finding| finding.code == code)
        .collect();
    assert_eq!(
        findings.len(),
        1,
        "{code} in {budgets}: {:?}",
        lint(&pool(budgets.clone()), None, now())
    );
    findings.remove(0)
}

/// The budgets that a suggestion proposes, read back.
fn proposed(finding: &Finding) -> Vec<Budget> {
    let text = finding.suggestion.as_deref().unwrap();
    serde_json::from_value(budgets_of(text)).unwrap()
}

/// The few shapes that suggestions have; a YAML parser is no dependency of a pure crate.
fn budgets_of(text: &str) -> Value {
    let mut budgets: Vec<Value> = Vec::new();
    for line in text.lines() {
        if line.starts_with("- ") {
            budgets.push(json!({}));
        }
        let (key, value) = line[2..].split_once(": ").unwrap();
        let value = match value.strip_prefix('[') {
            Some(list) => json!(list.trim_end_matches(']').split(", ").collect::<Vec<_>>()),
            None => json!(value.trim_matches('"')),
        };
        budgets.last_mut().unwrap()[key] = value;
    }
    Value::Array(budgets)
}

fn year() -> Window {
    Window {
        from: now(),
        until: now() + HORIZON,
    }
}

#[test]
fn d_380_the_weekend_example_is_an_error_and_its_repair_opens_on_weekends() {
    let seed = json!([
        {"nodes": "50%", "schedule": "0 0 * * 6", "duration": "48h"},
        {"nodes": "0"},
    ]);
    let finding = only(seed, "never-open");
    assert_eq!(
        (finding.level, finding.field.as_str()),
        (Level::Error, "spec.disruption.budgets[1]")
    );
    assert!(finding.message.contains(
        "budgets[0] (50% at \"0 0 * * 6\" for 48h) never opens for Empty, Drifted and Underutilized"
    ));
    assert_eq!(
        finding.suggestion.as_deref(),
        Some("- nodes: \"50%\"\n- nodes: \"0\"\n  schedule: \"0 0 * * 1\"\n  duration: 120h")
    );
    let budgets = proposed(&finding);
    let weekend = Activity::of(
        &Budget {
            schedule: Some("0 0 * * 6".to_owned()),
            duration: Some("48h".parse().unwrap()),
            ..Budget::always("50%")
        },
        year(),
    );
    let opened: Vec<Window> = calendar(&budgets, &DisruptionReason::Empty, 10, year())
        .intervals
        .into_iter()
        .filter(|interval| interval.allowed == 5)
        .map(|interval| Window {
            from: interval.from,
            until: interval.until,
        })
        .collect();
    assert_eq!(opened, weekend.windows);
}

#[test]
fn d_380_business_hours_only_is_repaired_with_two_budgets() {
    let finding = only(
        json!([{"nodes": "0"}, {"nodes": "2", "schedule": "0 9 * * mon-fri", "duration": "8h", "reasons": ["Drifted"]}]),
        "never-open",
    );
    assert_eq!(finding.field, "spec.disruption.budgets[0]");
    assert_eq!(
        finding.suggestion.as_deref(),
        Some(
            "- nodes: \"2\"\n  reasons: [Drifted]\n- nodes: \"0\"\n  reasons: [Drifted]\n  schedule: \"0 17 * * 1-4\"\n  duration: 16h\n- nodes: \"0\"\n  reasons: [Drifted]\n  schedule: \"0 17 * * 5\"\n  duration: 64h"
        )
    );
    let budgets = proposed(&finding);
    let drifted = calendar(&budgets, &DisruptionReason::Drifted, 10, year()).intervals;
    let closed = calendar(&budgets, &DisruptionReason::Empty, 10, year()).intervals;
    assert_eq!(drifted[0].until, "2026-01-01T17:00:00Z".parse().unwrap());
    assert_eq!((drifted[0].allowed, drifted[1].allowed), (2, 0));
    assert_eq!(
        closed[0].allowed,
        spokeshave_api::UNLIMITED,
        "other reasons are not spoken of"
    );
}

#[test]
fn d_380_the_gradual_rollout_gets_its_missing_zero() {
    let finding = only(
        json!([
            {"nodes": "1", "schedule": "0 2 * * *", "duration": "2h"},
            {"nodes": "3", "schedule": "0 4 * * *", "duration": "4h"},
        ]),
        "unlimited-between-windows",
    );
    assert_eq!(finding.level, Level::Warning);
    assert_eq!(
        finding.suggestion.as_deref(),
        Some("- nodes: \"0\"\n  schedule: \"0 8 * * *\"\n  duration: 18h")
    );
}

#[test]
fn d_390_the_typical_configuration_is_sound_but_for_expire_after() {
    let pool = json!({"spec": {"disruption": {
        "consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "30s", "expireAfter": "168h",
        "budgets": [{"nodes": "10%"}, {"nodes": "0", "schedule": "0 9 * * 1-5", "duration": "8h"}],
    }}});
    let findings = lint(&pool, None, now());
    let codes: Vec<&str> = findings.iter().map(|finding| finding.code).collect();
    assert_eq!(codes, ["expire-after-misplaced", "hours-are-utc"], "D-381");
    assert_eq!(
        findings[0].suggestion.as_deref(),
        Some("template:\n  spec:\n    expireAfter: 168h")
    );
}

#[test]
fn d_187_d_190_d_191_d_194_schedules_that_close_the_pool() {
    for (schedule, code, suggestion) in [
        ("* * * * 7", "schedule-malformed", Some("schedule: \"* * * * 0\"")),
        ("@dailyfoo", "schedule-malformed", Some("schedule: \"@daily\"")),
        (
            "0 0 9 * * 1-5",
            "schedule-malformed",
            Some("schedule: \"0 9 * * 1-5\""),
        ),
        ("nine o'clock", "schedule-malformed", None),
        (
            "TZ=Europe/Berlin 0 9 * * 1-5",
            "schedule-time-zone",
            Some("schedule: \"0 9 * * 1-5\""),
        ),
        (
            "0 0 31 2 *",
            "schedule-never-fires",
            Some("schedule: \"0 0 28 2 *\""),
        ),
    ] {
        let finding = only(
            json!([{"nodes": "1", "schedule": schedule, "duration": "1h"}]),
            code,
        );
        assert_eq!(finding.level, Level::Error, "{schedule}");
        assert_eq!(finding.field, "spec.disruption.budgets[0].schedule");
        assert_eq!(finding.suggestion.as_deref(), suggestion, "{schedule}");
        assert!(finding.message.contains(schedule), "{}", finding.message);
    }
}

#[test]
fn d_184_schedule_and_duration_belong_together() {
    assert_eq!(
        found(json!([{"nodes": "1", "schedule": "@daily"}])),
        [(
            Level::Error,
            "schedule-without-duration",
            "spec.disruption.budgets[0].duration".to_owned()
        )]
    );
    assert_eq!(
        found(json!([{"nodes": "1", "duration": "8h"}])),
        [(
            Level::Error,
            "duration-without-schedule",
            "spec.disruption.budgets[0].schedule".to_owned()
        )]
    );
}

#[test]
fn d_186_durations_that_no_api_server_takes() {
    for (duration, suggestion) in [
        ("2d", "duration: 48h"),
        ("30s", "duration: 1m"),
        ("1h1m1s", "duration: 1h2m"),
    ] {
        let finding = only(
            json!([{"nodes": "1", "schedule": "@weekly", "duration": duration}, {"nodes": "50%"}]),
            "duration-malformed",
        );
        assert_eq!(finding.suggestion.as_deref(), Some(suggestion));
    }
    assert_eq!(
        only(
            json!([{"nodes": "1", "schedule": "@daily", "duration": "0m"}, {"nodes": "50%"}]),
            "duration-zero"
        )
        .level,
        Level::Error
    );
}

#[test]
fn d_186_what_is_closed_begins_where_the_mended_duration_ends() {
    for (schedule, duration, closed) in [
        ("0 0 * * 1", "1h30m15s", "31 1 * * 1\"\n  duration: 166h29m"),
        ("* 0 * * 1", "30s", "0 1 * * 1\"\n  duration: 167h"),
    ] {
        let budgets = json!([{"nodes": "1", "schedule": schedule, "duration": duration}]);
        let finding = only(budgets, "unlimited-between-windows");
        let suggestion = format!("- nodes: \"0\"\n  schedule: \"{closed}");
        assert_eq!(finding.suggestion, Some(suggestion), "{duration}");
    }
}

#[test]
fn d_193_a_duration_that_covers_its_period() {
    let finding = only(
        json!([{"nodes": "1", "schedule": "@hourly", "duration": "90m"}]),
        "duration-covers-period",
    );
    assert_eq!(finding.level, Level::Warning);
    assert_eq!(finding.suggestion.as_deref(), Some("- nodes: \"1\""));
    let finding = only(
        json!([{"nodes": "10%"}, {"nodes": "0", "schedule": "0 0 * * 6,0", "duration": "48h"}]),
        "duration-covers-period",
    );
    assert!(
        finding.message.contains("longer than the 24h between two hits"),
        "{}",
        finding.message
    );
    assert_eq!(finding.suggestion.as_deref(), Some("duration: 24h"));
    let weekend = json!([{"nodes": "10%"}, {"nodes": "0", "schedule": "0 0 * * 6,0", "duration": "24h"}]);
    assert_eq!(
        found(weekend),
        [(Level::Note, "hours-are-utc", "spec.disruption.budgets".to_owned())]
    );
}

#[test]
fn a_closed_moment_that_never_ends_is_found_across_budgets() {
    let finding = only(
        json!([
            {"nodes": "10%"},
            {"nodes": "0", "schedule": "0 6 * * *", "duration": "12h"},
            {"nodes": "0", "schedule": "0 18 * * *", "duration": "12h"},
        ]),
        "never-open",
    );
    assert_eq!(finding.field, "spec.disruption.budgets[2].schedule");
    assert!(
        finding
            .message
            .starts_with("budgets[1] and budgets[2] leave no moment open"),
        "{}",
        finding.message
    );
}

#[test]
fn a_window_inside_a_closed_one_never_opens() {
    let finding = only(
        json!([
            {"nodes": "10%"},
            {"nodes": "0", "schedule": "0 8 * * *", "duration": "12h"},
            {"nodes": "5", "schedule": "0 9 * * *", "duration": "1h"},
        ]),
        "window-never-opens",
    );
    assert_eq!(
        (finding.level, finding.field.as_str()),
        (Level::Error, "spec.disruption.budgets[2].schedule")
    );
    assert!(
        finding
            .message
            .contains("budgets[1] (0 at \"0 8 * * *\" for 12h)"),
        "{}",
        finding.message
    );
}

#[test]
fn a_zero_that_blocks_all_reasons_by_accident() {
    let finding = only(
        json!([{"nodes": "10%", "reasons": ["Empty"]}, {"nodes": "0"}]),
        "blocks-all-reasons",
    );
    assert_eq!(
        (finding.level, finding.field.as_str()),
        (Level::Error, "spec.disruption.budgets[1].nodes")
    );
    assert_eq!(
        finding.suggestion.as_deref(),
        Some("- nodes: \"0\"\n  reasons: [Drifted, Underutilized]")
    );
    let misspelt = json!([{"nodes": "10%"}, {"nodes": "0", "reason": ["drifted"]}]);
    let finding = only(misspelt.clone(), "field-unknown");
    assert_eq!(finding.suggestion.as_deref(), Some("reasons: [Drifted]"));
    assert_eq!(only(misspelt, "blocks-all-reasons").level, Level::Error);
}

#[test]
fn d_210_turning_everything_off_is_a_note() {
    for nodes in ["0", "0%"] {
        let finding = only(json!([{"nodes": nodes}]), "always-closed");
        assert_eq!(
            (finding.level, finding.field.as_str()),
            (Level::Note, "spec.disruption.budgets[0].nodes")
        );
        assert!(
            finding.message.contains("Empty, Drifted and Underutilized"),
            "{}",
            finding.message
        );
    }
}

#[test]
fn d_188_d_209_reasons_that_are_none() {
    let finding = only(
        json!([{"nodes": "0", "reasons": ["empty"]}, {"nodes": "1"}]),
        "reason-unknown",
    );
    assert_eq!(
        (finding.field.as_str(), finding.suggestion.as_deref()),
        ("spec.disruption.budgets[0].reasons[0]", Some("- Empty"))
    );
    let finding = only(
        json!([{"nodes": "0", "reasons": ["Empty", "Expired"]}, {"nodes": "1"}]),
        "reason-unknown",
    );
    assert_eq!(finding.field, "spec.disruption.budgets[0].reasons[1]");
    assert!(
        finding.message.contains("expiration is never limited"),
        "{}",
        finding.message
    );
    assert_eq!(
        only(json!([{"nodes": "0", "reasons": []}]), "reasons-empty").level,
        Level::Warning
    );
    for (name, closed) in [
        ("Expired", 0),
        ("expired", 3),
        ("Expiration", 3),
        ("drift", 3),
        ("Moon", 3),
    ] {
        let written = pool(json!([{"nodes": "0", "reasons": [name]}]));
        let said = &lint(&written, None, now())[0].message;
        let budgets = read(&written).budgets;
        let allowed = |reason| calendar(&budgets, reason, 10, year()).intervals[0].allowed;
        let covered = REASONS.iter().filter(|reason| allowed(*reason) == 0).count();
        assert_eq!(
            (covered, said.contains("limits every reason")),
            (closed, closed == 3),
            "{said}"
        );
    }
}

#[test]
fn d_185_numbers_that_no_api_server_takes() {
    for (nodes, suggestion) in [
        (json!("10.5%"), Some("nodes: \"11%\"")),
        (json!("101%"), Some("nodes: \"100%\"")),
        (json!(5), Some("nodes: \"5\"")),
        (json!("-1"), Some("nodes: \"0\"")),
        (json!("ten"), None),
        (json!({}), None),
    ] {
        let finding = only(json!([{"nodes": nodes}]), "nodes-malformed");
        assert_eq!(finding.level, Level::Error);
        assert_eq!(finding.suggestion.as_deref(), suggestion, "{nodes}");
    }
}

#[test]
fn d_196_a_percentage_rounds_up_and_never_to_zero() {
    for percent in 1..=100 {
        for nodes in 1..=60 {
            assert!(Budget::always(&format!("{percent}%")).allowed(nodes).unwrap() >= 1);
        }
    }
    let counts = |nodes, disrupting| Some(NodeCounts { nodes, disrupting });
    let of = |counts| lint(&pool(json!([{"nodes": "5%"}])), counts, now());
    assert_eq!(of(counts(100, 0)), []);
    let findings = of(counts(3, 0));
    assert_eq!((findings[0].code, findings.len()), ("rounded-up", 1));
    assert!(
        findings[0]
            .message
            .contains("rounded up to 1, which is 33% of them"),
        "{}",
        findings[0].message
    );
    let findings = of(counts(40, 2));
    assert_eq!((findings[0].code, findings[0].level), ("used-up", Level::Note));
}

#[test]
fn d_183_an_absent_list_is_fine_and_an_empty_one_is_noted() {
    assert_eq!(lint(&json!({"spec": {}}), None, now()), []);
    assert_eq!(
        found(json!([])),
        [(Level::Note, "no-budget", "spec.disruption.budgets".to_owned())]
    );
}

#[test]
fn shadowed_budgets_are_noted() {
    assert_eq!(
        found(json!([{"nodes": "20%"}, {"nodes": "10%"}])),
        [(
            Level::Note,
            "without-effect",
            "spec.disruption.budgets[0]".to_owned()
        )]
    );
    assert_eq!(
        found(json!([{"nodes": "20%"}, {"nodes": "5"}])),
        [],
        "which one decides depends on the number of nodes"
    );
}

#[test]
fn anything_may_stand_there() {
    for odd in [
        json!("x"),
        json!({"nodes": 3}),
        json!([1, null, "10%"]),
        json!([{"reasons": 3, "schedule": 4, "duration": 5}]),
        json!([{"reasons": [1]}]),
    ] {
        let findings = lint(&pool(odd.clone()), Some(NodeCounts::default()), now());
        assert!(
            findings.iter().any(|finding| finding.level == Level::Error),
            "{odd}: {findings:?}"
        );
    }
    for odd in [
        json!(null),
        json!([]),
        json!({"spec": 3}),
        json!({"spec": {"disruption": []}}),
    ] {
        assert_eq!(lint(&odd, None, now()), []);
    }
}

#[test]
fn d_188_a_zero_for_named_reasons_beside_a_budget_for_all_is_deliberate() {
    for budgets in [
        json!([{"nodes": "10%"}, {"nodes": "0", "reasons": ["Drifted"]}]),
        json!([{"nodes": "100%"}, {"nodes": "0", "reasons": ["Drifted"]}]),
        json!([{"nodes": "0", "reasons": ["Drifted"]}, {"nodes": "10%"}]),
        json!([{"nodes": "0", "reasons": ["Underutilized", "Drifted"]}, {"nodes": "10%"}]),
        json!([{"nodes": "10%", "reasons": ["Empty", "Drifted"]}, {"nodes": "0", "reasons": ["Drifted"]}]),
    ] {
        let findings = lint(&pool(budgets.clone()), None, now());
        let codes: Vec<(Level, &str)> = findings.iter().map(|one| (one.level, one.code)).collect();
        assert_eq!(codes, [(Level::Note, "always-closed")], "{budgets}: {findings:?}");
        assert!(findings[0].message.contains("Drifted"), "{}", findings[0].message);
        assert!(!findings[0].message.contains("Empty"), "{}", findings[0].message);
    }
    // A window that is open for other reasons is one, too.
    let weekend = json!([
        {"nodes": "50%", "schedule": "0 0 * * 6", "duration": "48h"},
        {"nodes": "0", "schedule": "0 0 * * 1", "duration": "120h"},
        {"nodes": "0", "reasons": ["Drifted"]},
    ]);
    let levels = lint(&pool(weekend), None, now());
    assert!(levels.iter().all(|one| one.level == Level::Note), "{levels:?}");
}

#[test]
fn what_is_unlimited_is_closed_for_these_reasons_only() {
    let finding = only(
        json!([
            {"nodes": "10%", "reasons": ["Empty"]},
            {"nodes": "1", "schedule": "0 2 * * *", "duration": "2h", "reasons": ["Drifted", "Underutilized"]},
        ]),
        "unlimited-between-windows",
    );
    assert!(
        finding
            .message
            .ends_with("Drifted and Underutilized are unlimited then"),
        "{}",
        finding.message
    );
    assert_eq!(
        finding.suggestion.as_deref(),
        Some(
            "- nodes: \"0\"\n  reasons: [Drifted, Underutilized]\n  schedule: \"0 4 * * *\"\n  duration: 22h"
        )
    );
}

#[test]
fn budgets_for_reasons_that_the_policy_rules_out_are_noted() {
    let of = |disruption: Value| lint(&json!({"spec": {"disruption": disruption}}), None, now());
    let budgets = json!([{"nodes": "10%"}, {"nodes": "0", "reasons": ["Underutilized"]}]);
    let found = of(json!({"consolidationPolicy": "WhenEmpty", "budgets": budgets}));
    let noted = found
        .iter()
        .find(|one| one.code == "reason-never-occurs")
        .unwrap();
    assert_eq!(
        (noted.level, noted.field.as_str()),
        (Level::Note, "spec.disruption.budgets[1].reasons")
    );
    assert_eq!(
        noted.message,
        "with consolidationPolicy: WhenEmpty no node is disrupted as Underutilized: the budget limits nothing"
    );
    let both = json!([{"nodes": "1", "reasons": ["Empty", "Drifted", "Underutilized"]}]);
    let found = of(json!({"consolidateAfter": "Never", "budgets": both}));
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        found[0].message,
        "with consolidateAfter: Never no node is disrupted as Empty or Underutilized: the budget limits only Drifted"
    );
    assert!(
        of(json!({"consolidateAfter": "30s", "consolidationPolicy": "WhenEmptyOrUnderutilized", "budgets": both})).is_empty()
    );
}

#[test]
fn policies_that_the_api_server_refuses_are_errors() {
    for (policy, suggestion) in [
        (
            "WhenUnderutilized",
            "consolidationPolicy: WhenEmptyOrUnderutilized",
        ),
        ("whenEmpty", "consolidationPolicy: WhenEmpty"),
        ("balanced", "consolidationPolicy: Balanced"),
    ] {
        let found = lint(
            &json!({"spec": {"disruption": {"consolidationPolicy": policy}}}),
            None,
            now(),
        );
        assert_eq!(found.len(), 1, "{policy}: {found:?}");
        assert_eq!(
            (found[0].level, found[0].code),
            (Level::Error, "consolidation-policy-unknown")
        );
        assert_eq!(found[0].suggestion.as_deref(), Some(suggestion));
    }
}
