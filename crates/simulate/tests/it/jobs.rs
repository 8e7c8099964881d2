//! Jobs whose pods are lost: their controller waits with the next one, as Kubernetes' does.

use spokeshave_scenario::{Change, OwnerKind};
use spokeshave_simulate::{Line, Watch, live_watched};

use crate::small::{HOUR, SECOND, expiring, owner, timeline, world};

/// When the pods of a Job that takes an hour were born and evicted, on nodes that expire after ten minutes. It is deleted after `until_ms`.
fn lived(until_ms: u64) -> (Vec<u64>, Vec<u64>) {
    let (mut born, mut evicted) = (Vec::new(), Vec::new());
    let mut sink = |line: Line<'_>| match line.what {
        "born" => born.push(line.at_ms),
        "evicted" => evicted.push(line.at_ms),
        _ => {}
    };
    let begin = Change::Begin {
        pod: 0,
        runs_ms: Some(HOUR),
    };
    let events = vec![(0, 0, begin), (until_ms, 0, Change::End { pod: 0 })];
    let timeline = timeline(vec![owner(OwnerKind::Job, "batch", "1")], events);
    let watch = Watch {
        lines: Some(&mut sink),
        ..Watch::default()
    };
    live_watched(&world(1), &timeline, &expiring("10m"), 1, &|| false, watch);
    (born, evicted)
}

#[test]
fn a_job_waits_longer_with_each_pod_after_one_that_was_lost() {
    let (born, evicted) = lived(HOUR);
    let pauses = born[1..]
        .iter()
        .zip(&evicted)
        .map(|(born, evicted)| born - evicted);
    let pauses: Vec<u64> = pauses.take(3).collect();
    assert_eq!(pauses, [10 * SECOND, 20 * SECOND, 40 * SECOND]);
}

#[test]
fn a_job_that_is_deleted_while_it_waits_makes_no_more_pods() {
    let (_, evicted) = lived(HOUR);
    let (born, _) = lived(evicted[0] + 5 * SECOND);
    assert_eq!(born, [0]);
}
