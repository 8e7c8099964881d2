//! What really was, beside what was simulated: in the table, in the JSON form and in the report.

use crate::draws::{LEVEL, run, setting};
use serde_json::{Value, json};
use spokeshave_comparison::{AsRecorded, Comparison};
use spokeshave_simulate::recorded::NodeTime;

const HOUR_MS: u64 = 3_600_000;
const POLICIES: [&str; 2] = ["now", "later"];

fn nodes() -> NodeTime {
    NodeTime {
        span_ms: 10 * HOUR_MS,
        node_ms: 25 * HOUR_MS,
        peak_nodes: 4,
        cost_micros: Some(5_500_000),
        without_price: Vec::new(),
    }
}

fn beside(nodes: Option<&NodeTime>) -> Comparison {
    let mut setting = setting(&POLICIES);
    setting.as_recorded = nodes.map(|nodes| AsRecorded::new("shop.jsonl", nodes));
    let runs = POLICIES.map(|policy| run(policy, 1, 1, LEVEL));
    Comparison::of(setting, &runs, &[]).unwrap()
}

#[test]
fn what_really_was_is_said_beside_the_policies_and_marked_as_measured() {
    let comparison = beside(Some(&nodes()));
    let text = comparison.to_text(1_000);
    let expected = "As recorded in shop.jsonl (measured, not simulated): $5.50 by listed prices; 25.0 node-hours, 2.50 nodes on average, 4 at most; now, simulated: $";
    assert!(text.contains(expected), "{text}");
    let json: Value = serde_json::from_str(&comparison.to_json()).unwrap();
    assert_eq!(
        json["setting"]["asRecorded"],
        json!({"file": "shop.jsonl", "basis": "measured, not simulated", "nodeHours": 25.0, "meanNodes": 2.5, "peakNodes": 4, "cost": 5.5})
    );
    let html = comparison.to_html();
    assert!(
        html.contains("measured, not simulated: shop.jsonl") && html.contains("value=\"5.5\">$5.50</data>"),
        "{html}"
    );
}

#[test]
fn without_a_price_of_every_instance_there_is_no_cost() {
    let unknown = NodeTime {
        cost_micros: None,
        without_price: vec!["m9.large spot a".to_owned(), "m9.large spot b".to_owned()],
        ..nodes()
    };
    let comparison = beside(Some(&unknown));
    let text = comparison.to_text(1_000);
    let expected =
        "no cost, because there is no listed price of m9.large spot a and 1 other; 25.0 node-hours";
    assert!(text.contains(expected), "{text}");
    let json: Value = serde_json::from_str(&comparison.to_json()).unwrap();
    let recorded = &json["setting"]["asRecorded"];
    assert_eq!(recorded["cost"], Value::Null);
    assert_eq!(
        recorded["withoutPrice"],
        json!(["m9.large spot a", "m9.large spot b"])
    );
}

#[test]
fn where_nothing_was_recorded_of_nodes_nothing_is_said() {
    let comparison = beside(None);
    let all = [
        comparison.to_text(150),
        comparison.to_json(),
        comparison.to_html(),
    ];
    for text in all {
        let text = text.to_lowercase();
        assert!(
            !text.contains("as recorded") && !text.contains("asrecorded"),
            "{text}"
        );
    }
}
