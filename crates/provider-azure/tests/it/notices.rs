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
        "Reboot Scheduled: soon. EventId: a-b.",
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
