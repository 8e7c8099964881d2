//! Promises about drift.

use std::time::Duration;

use kube_core::DynamicObject;
use spokeshave_api::NodeClaim;

use super::{Harness, Kept, POLL, create, ensure, terminate};
use crate::CloudError;

/// How long a cloud may take to show an instance that it has launched.
const VISIBLE_LIMIT: Duration = Duration::from_secs(5 * 60);

/// What was just made is what was asked for.
pub async fn fresh_instances_have_not_drifted(harness: &dyn Harness) -> Kept {
    let created = create(harness, &harness.node_claim("conformance-fresh")).await?;
    let class = harness.node_class().await;
    let drifted = harness.provider().is_drifted(&created, class.as_ref()).await;
    terminate(harness, &created).await?;
    match drifted {
        Ok(None) => Ok(()),
        other => Err(format!("expected no drift, got {other:?}")),
    }
}

/// Drift is judged by the NodeClass that the caller shows, also when the provider has not seen it yet.
pub async fn drift_goes_by_the_class_that_is_shown(harness: &dyn Harness) -> Kept {
    let Some(class) = harness.node_class().await else {
        return Ok(());
    };
    let created = create(harness, &harness.node_claim("conformance-shown")).await?;
    let mut changed = class.clone();
    harness.change_node_class(&mut changed);
    if changed == class {
        // Whoever lends the NodeClass knows no field of it.
        return terminate(harness, &created).await;
    }
    let provider = harness.provider();
    let by_the_changed = verdict_when_visible(harness, &created, &changed).await;
    let by_the_present = provider.is_drifted(&created, Some(&class)).await;
    let by_none = provider.is_drifted(&created, None).await;
    terminate(harness, &created).await?;
    ensure(matches!(&by_the_changed, Ok(Some(_))), || {
        format!(
            "the NodeClass that was shown has changed so that the instance has drifted: expected a reason, got {by_the_changed:?}"
        )
    })?;
    for (what, answer) in [("is as it was", by_the_present), ("does not exist", by_none)] {
        ensure(matches!(&answer, Ok(None)), || {
            format!("the NodeClass that was shown {what}: expected no drift, got {answer:?}")
        })?;
    }
    Ok(())
}

/// A cloud may not show an instance at once that it has launched: until then there is no verdict.
async fn verdict_when_visible(
    harness: &dyn Harness,
    claim: &NodeClaim,
    class: &DynamicObject,
) -> Result<Option<String>, CloudError> {
    let clock = harness.clock();
    let start = clock.now();
    loop {
        let verdict = harness.provider().is_drifted(claim, Some(class)).await;
        if !matches!(verdict, Ok(None)) || clock.since(start) > VISIBLE_LIMIT {
            return verdict;
        }
        clock.sleep(POLL).await;
    }
}
