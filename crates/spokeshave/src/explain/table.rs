//! An explanation as text: one screen, 80 columns.

use std::fmt::Write as _;

use jiff::Timestamp;
use spokeshave_story::explain::{Meaning, PodLine, Step, StepState, Story, age};

use crate::text::wrap;

/// Pods without a blocker that are shown one by one; more are counted.
const PODS: usize = 8;

/// The whole page.
pub(crate) fn render(story: &Story, now: Timestamp) -> String {
    let mut out = String::new();
    let title = format!("{} {}: {}", story.object_kind, story.name, story.summary);
    let _ = writeln!(out, "{}", wrap(&title, 0, 2));
    for fact in &story.facts {
        let _ = writeln!(
            out,
            "{}",
            wrap(&format!("{:14} {}", fact.name, fact.value), 2, 17)
        );
    }
    steps(&mut out, story, now);
    if !story.waits.is_empty() {
        out.push_str("\nIn the way\n");
        for wait in &story.waits {
            let since = wait
                .since
                .map(|since| format!(", for {}", age(since, now)))
                .unwrap_or_default();
            let line = format!("{}: {}{since}", wait.object, wait.message);
            let _ = writeln!(out, "{}", wrap(&line, 2, 4));
        }
    }
    verdict(&mut out, story);
    // Where there are steps, what matters about pods has been said above.
    if story.steps.is_empty() {
        pods(&mut out, &story.pods);
    }
    if !story.next.is_empty() {
        out.push_str("\nNext\n");
        for next in &story.next {
            let line = match next.at {
                Some(at) if at > now => format!("{at}  in {}: {}", age(now, at), next.what),
                Some(at) => format!("{at}  due: {}", next.what),
                None => next.what.clone(),
            };
            let _ = writeln!(out, "{}", wrap(&line, 2, 4));
        }
    }
    if !story.hints.is_empty() {
        out.push_str("\nTry\n");
        for hint in &story.hints {
            let _ = writeln!(out, "{}", wrap(hint, 2, 4));
        }
    }
    out
}

fn steps(out: &mut String, story: &Story, now: Timestamp) {
    if story.steps.is_empty() {
        return;
    }
    out.push_str("\nSteps\n");
    for Step {
        name,
        state,
        since,
        detail,
    } in &story.steps
    {
        let mark = match state {
            StepState::Done => "done",
            StepState::Active => "NOW",
            StepState::Waiting => "-",
            StepState::Failed => "FAILED",
        };
        let since = match (since, state) {
            (Some(since), StepState::Done) => format!(" at {since}"),
            (Some(since), StepState::Active | StepState::Failed) => format!(", for {}", age(*since, now)),
            _ => String::new(),
        };
        let detail = match detail.as_str() {
            "" => String::new(),
            detail => format!(": {detail}"),
        };
        let line = format!("{mark:7} {name}{since}{detail}");
        let _ = writeln!(out, "{}", wrap(&line, 2, 10));
    }
}

fn verdict(out: &mut String, story: &Story) {
    let Some(verdict) = &story.verdict else {
        return;
    };
    let by = verdict
        .method
        .as_deref()
        .map(|method| format!(" by {method}"))
        .unwrap_or_default();
    let replacement = verdict
        .replacement
        .as_deref()
        .filter(|_| verdict.decision == "replace")
        .map(|name| format!(" with {name}"))
        .unwrap_or_default();
    let _ = writeln!(out, "\nVerdict: {}{replacement}{by}", verdict.decision);
    if let Some(waits) = &verdict.waits {
        let _ = writeln!(out, "{}", wrap(waits, 2, 4));
    }
    for blocker in &verdict.blockers {
        let line = format!("{}: {}", blocker.object, blocker.message);
        let _ = writeln!(out, "{}", wrap(&line, 2, 4));
    }
    if !verdict.if_removed.is_empty() {
        let _ = writeln!(out, "{}", wrap(&verdict.if_removed, 2, 4));
    }
}

fn pods(out: &mut String, pods: &[PodLine]) {
    if pods.is_empty() {
        return;
    }
    out.push_str("\nPods\n");
    let blocking = pods.iter().filter(|pod| pod.blocks).count();
    let shown = pods.len().min(blocking + PODS);
    for pod in &pods[..shown] {
        let mark = if pod.blocks { "KEEPS" } else { word(pod.meaning) };
        let line = format!("{mark:8} {}: {}", pod.pod, pod.message);
        let _ = writeln!(out, "{}", wrap(&line, 2, 11));
    }
    let rest = &pods[shown..];
    if !rest.is_empty() {
        let counted = [
            Meaning::Stopping,
            Meaning::Movable,
            Meaning::Tolerates,
            Meaning::Daemon,
            Meaning::Static,
            Meaning::Finished,
        ]
        .into_iter()
        .filter_map(|meaning| {
            let number = rest.iter().filter(|pod| pod.meaning == meaning).count();
            (number > 0).then(|| format!("{number} {}", word(meaning)))
        });
        let counted: Vec<String> = counted.collect();
        let _ = writeln!(out, "  and {} more: {}", rest.len(), counted.join(", "));
    }
}

fn word(meaning: Meaning) -> &'static str {
    match meaning {
        Meaning::DoNotDisrupt | Meaning::MultipleBudgets | Meaning::Budget => "keeps",
        Meaning::Stopping => "stopping",
        Meaning::Movable => "movable",
        Meaning::Tolerates => "tolerant",
        Meaning::Daemon => "daemon",
        Meaning::Static => "static",
        Meaning::Finished => "finished",
    }
}
