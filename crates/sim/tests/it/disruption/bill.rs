//! What the ledger says was saved is what the cloud's bill shrinks by.

use std::collections::BTreeSet;

use serde_json::json;
use spokeshave_api::NodeClaim;
use spokeshave_api::disruption::DisruptionPhase;
use spokeshave_sim::lab::LabOptions;

use crate::plain::Cluster;
use crate::words::*;

/// Billionths of a dollar in a decimal text that may be negative.
pub(super) fn nano_dollars(text: &str) -> i64 {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    assert!(fraction.len() <= 9, "{text}");
    sign * format!("{whole}{fraction:0<9}").parse::<i64>().unwrap()
}

/// The price of all machines is asked of the cloud's own record, which no decision reads: deletions, replacements and empty nodes, in commands of one node and of several.
#[tokio::test(start_paused = true)]
async fn capability_21_realised_savings_add_up_to_what_the_bill_shrinks_by() {
    for seed in [3, 4, 5] {
        let change = json!({"disruption": {
            "consolidateAfter": "30s", "consolidationPolicy": "WhenEmptyOrUnderutilized", "budgets": [{"nodes": "100%"}]}});
        let cluster = Cluster::new(LabOptions::new(seed), change).await.with_operator();
        cluster.deploy("large", 24, "3500m").await;
        cluster.deploy("small", 60, "700m").await;
        cluster.until_running(84).await;
        let (before, first) = (cluster.invariants.cost(), cluster.names::<NodeClaim>().await);
        cluster.scale("large", 5).await;
        cluster.scale("small", 17).await;
        cluster.pass(1800).await;
        cluster.assert_at_rest().await;
        assert_eq!(cluster.running().await, 22);
        let ledger = cluster.ledger().await;
        let mut known: BTreeSet<String> = first.into_iter().collect();
        let mut saved = 0;
        for one in &ledger {
            known.extend(one.spec.replacements.iter().map(|one| one.node_claim.clone()));
            let realised = one
                .status
                .as_ref()
                .and_then(|status| status.realised_savings.as_deref());
            match (one.phase(), realised) {
                (DisruptionPhase::Succeeded, Some(realised)) => saved += nano_dollars(realised),
                other => panic!("{other:?}: {:?}", cluster.ledger_text().await),
            }
        }
        let decisions: BTreeSet<String> = ledger.iter().map(|one| one.spec.decision.to_string()).collect();
        assert!(decisions.contains("Delete"), "{decisions:?}");
        // Nothing was launched but first and by commands, so that nothing else changes the bill.
        let now = cluster.names::<NodeClaim>().await;
        assert!(now.iter().all(|name| known.contains(name)), "{now:?}");
        // The cloud's record is in whole millionths, rounded for each machine.
        let shrunk = (before - cluster.invariants.cost()) * 1000;
        let rounding = 1000 * i64::try_from(known.len()).unwrap();
        assert!(
            (shrunk - saved).abs() <= rounding,
            "seed {seed}: the bill shrinks by {shrunk} and the ledger says {saved}: {:?}",
            cluster.ledger_text().await
        );
        assert!(saved > 0);
        cluster.assert_kept();
    }
}
