//! Promises about a launch that is asked for again.

use std::collections::BTreeSet;
use std::time::Duration;

use spokeshave_api::NodeClaim;

use super::{Harness, Kept, create, ensure, list, terminate};

/// Who remembers a launch only for as long as somebody waits for its answer has forgotten it by then.
const LATER: Duration = Duration::from_secs(120);

/// A second `create` for the same UID finds the first one's instance, as after a crash before the answer was written down.
pub async fn create_is_idempotent(harness: &dyn Harness) -> Kept {
    let claim = harness.node_claim("conformance-twice");
    let before = instances(harness).await?;
    let first = create(harness, &claim).await?;
    let second = create(harness, &claim).await?;
    let verdict = same_single_instance(harness, &before, &first, &second).await;
    terminate(harness, &first).await?;
    verdict
}

/// The same minutes later, as after somebody has taken the provider ID away. Not tried where these would be minutes of whoever waits.
pub async fn create_is_idempotent_minutes_later(harness: &dyn Harness) -> Kept {
    if !harness.is_time_virtual() {
        return Ok(());
    }
    let clock = harness.clock();
    let claim = harness.node_claim("conformance-later");
    let before = instances(harness).await?;
    let first = create(harness, &claim).await?;
    clock.sleep(LATER).await;
    let second = create(harness, &claim).await?;
    // A cloud may be late to show what it has launched; by then it does.
    clock.sleep(LATER).await;
    let verdict = same_single_instance(harness, &before, &first, &second).await;
    terminate(harness, &first).await?;
    verdict
}

/// The same when both calls overlap.
pub async fn concurrent_creates_make_one_instance(harness: &dyn Harness) -> Kept {
    let claim = harness.node_claim("conformance-race");
    let before = instances(harness).await?;
    let (first, second) = futures::join!(create(harness, &claim), create(harness, &claim));
    let (first, second) = (first?, second?);
    let verdict = same_single_instance(harness, &before, &first, &second).await;
    terminate(harness, &first).await?;
    verdict
}

/// Provider IDs of all instances.
async fn instances(harness: &dyn Harness) -> Result<BTreeSet<String>, String> {
    let listed = list(harness).await?;
    let ids = listed.iter().filter_map(NodeClaim::provider_id);
    Ok(ids.map(str::to_owned).collect())
}

/// Both answers name one instance, and nothing else was launched: a second machine may hide behind the ID of the first, and bear no UID.
async fn same_single_instance(
    harness: &dyn Harness,
    before: &BTreeSet<String>,
    first: &NodeClaim,
    second: &NodeClaim,
) -> Kept {
    ensure(first.provider_id() == second.provider_id(), || {
        format!(
            "one NodeClaim has instances {:?} and {:?}",
            first.provider_id(),
            second.provider_id()
        )
    })?;
    let listed = list(harness).await?;
    let own = first.provider_id().unwrap_or_default();
    let is_added = |one: &&NodeClaim| {
        let id = one.provider_id().unwrap_or_default();
        let uid = one.metadata.uid.as_deref();
        // An operator beside the suite may launch for NodeClaims of its own.
        let is_of_others = id != own && uid.is_some_and(|uid| uid != first.uid());
        !before.contains(id) && !is_of_others
    };
    let added = listed.iter().filter(is_added);
    let added: Vec<&str> = added.filter_map(NodeClaim::provider_id).collect();
    ensure(added == [own], || {
        format!("one NodeClaim was launched as {own}, and list has since then {added:?}")
    })
}
