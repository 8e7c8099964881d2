//! What conditions of nodes tell of a machine's end (Z-055).

use spokeshave_model::interruption::InterruptionKind;
use spokeshave_provider_azure::notices::{Notice, read};

#[test]
fn z_055_the_deadline_is_in_the_message() {
    let message = "Preempt Scheduled: Mon, 24 Aug 2026 18:29:47 GMT. DurationInSeconds: -1. EventId: 602d9444-d2cd-49c7-8624-8643e7171297";
    assert_eq!(
        read("PreemptionScheduled", "True", message),
        Some(Notice {
            id: "602d9444-d2cd-49c7-8624-8643e7171297".to_owned(),
            kind: InterruptionKind::SpotInterrupted,
            at: Some("2026-08-24T18:29:47Z".parse().unwrap()),
        })
    );
    let event = read(
        "VMEventScheduled",
        "True",
        "Redeploy Scheduled: soon. EventId: a-b.",
    )
    .unwrap();
    assert_eq!(
        (event.id.as_str(), event.kind, event.at),
        ("a-b", InterruptionKind::ScheduledChange, None)
    );
    assert_eq!(
        read("PreemptionScheduled", "True", "").unwrap().id,
        "PreemptionScheduled"
    );
    for (condition, status) in [
        ("PreemptionScheduled", "False"),
        ("PreemptionScheduled", "Unknown"),
        ("Ready", "True"),
    ] {
        assert_eq!(read(condition, status, message), None);
    }
}

/// As AKS's own drain of nodes does: it leaves a node alone that stands still for seconds or starts anew.
#[test]
fn z_055_an_event_that_a_machine_survives_is_no_notice() {
    let kind = |message: &str| read("VMEventScheduled", "True", message).map(|notice| notice.kind);
    let of_event = |event: &str| {
        kind(&format!(
            "{event} Scheduled: Mon, 24 Aug 2026 18:29:47 GMT. DurationInSeconds: 5. EventId: e"
        ))
    };
    for event in ["Freeze", "freeze", "Reboot"] {
        assert_eq!(of_event(event), None, "{event}");
    }
    for event in ["Redeploy", "Terminate", "Someday"] {
        assert_eq!(
            of_event(event),
            Some(InterruptionKind::ScheduledChange),
            "{event}"
        );
    }
    assert_eq!(
        of_event("Preempt"),
        Some(InterruptionKind::SpotInterrupted),
        "its offering is left out too"
    );
    assert_eq!(
        kind("maintenance"),
        Some(InterruptionKind::ScheduledChange),
        "what names no event may be any"
    );
    assert_eq!(kind(""), Some(InterruptionKind::ScheduledChange));
    let preempted = read("PreemptionScheduled", "True", "Freeze of billing").map(|notice| notice.kind);
    assert_eq!(
        preempted,
        Some(InterruptionKind::SpotInterrupted),
        "the condition says it"
    );
}
