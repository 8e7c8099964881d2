//! How long the containers of a pod take to stop beyond their own time: the hooks that they run before.
//!
//! Pure. No container runs, so of a hook counts what can be read from it: its sleep. kwok's annotation says the same without a hook.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, LifecycleHandler, Pod};

/// Annotation of a pod in kwok's own clusters: how long its deletion takes.
const DELAY: &str = "pod-delete.stage.kwok.x-k8s.io/delay";

/// Longer than any grace period.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// How long the hooks of a pod take. Containers run theirs at the same time.
pub(crate) fn hooks(pod: &Pod) -> Duration {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let longest = containers.filter_map(hook).map(length).max();
    longest.unwrap_or_default().max(delay(pod))
}

fn hook(container: &Container) -> Option<&LifecycleHandler> {
    container.lifecycle.as_ref()?.pre_stop.as_ref()
}

fn delay(pod: &Pod) -> Duration {
    let annotations = pod.metadata.annotations.as_ref();
    let text = annotations.and_then(|annotations| annotations.get(DELAY));
    let length = text.and_then(|text| text.parse::<spokeshave_api::GoDuration>().ok());
    length.and_then(|length| length.to_std()).unwrap_or_default()
}

fn length(hook: &LifecycleHandler) -> Duration {
    if let Some(sleep) = &hook.sleep {
        return Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or(0));
    }
    let command = hook.exec.as_ref().and_then(|exec| exec.command.as_deref());
    command.map_or(Duration::ZERO, slept)
}

/// What the sleeps of a command add up to: `sleep 60`, or a shell's script with some.
fn slept(command: &[String]) -> Duration {
    let words: Vec<&str> = match command {
        [shell, flag, script] if is_shell(shell) && flag.starts_with('-') && flag.ends_with('c') => {
            return script
                .split([';', '&', '|', '\n'])
                .map(|part| of_words(&part.split_whitespace().collect::<Vec<_>>()))
                .sum();
        }
        words => words.iter().map(String::as_str).collect(),
    };
    of_words(&words)
}

fn is_shell(program: &str) -> bool {
    matches!(program.rsplit('/').next(), Some("sh" | "bash" | "ash" | "dash"))
}

fn of_words(words: &[&str]) -> Duration {
    match words {
        [program, numbers @ ..] if program.rsplit('/').next() == Some("sleep") => {
            numbers.iter().map(|number| of_number(number)).sum()
        }
        _ => Duration::ZERO,
    }
}

/// `90`, `1.5m`, `2h`, as the program `sleep` reads them; anything else is no time.
fn of_number(text: &str) -> Duration {
    if matches!(text, "inf" | "infinity") {
        return FOR_EVER;
    }
    let (number, unit) = match text.strip_suffix(['s', 'm', 'h', 'd']) {
        Some(number) => (number, &text[number.len()..]),
        None => (text, "s"),
    };
    let seconds = match unit {
        "m" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => 1.0,
    };
    let number: f64 = number.parse().unwrap_or(0.0);
    Duration::try_from_secs_f64(number * seconds).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_are_read_from_commands() {
        for (command, seconds) in [
            (&["sleep", "60"][..], 60),
            (&["/bin/sleep", "1m", "30"], 90),
            (&["sh", "-c", "echo bye; sleep 5 && sleep 0.5m\nexit 0"], 35),
            (&["/bin/bash", "-ec", "/usr/bin/sleep 7"], 7),
            (&["nginx", "-s", "quit"], 0),
            (&["sleep", "infinity"], FOR_EVER.as_secs()),
            (&["sleep"], 0),
            (&[], 0),
        ] {
            let command: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
            assert_eq!(slept(&command), Duration::from_secs(seconds), "{command:?}");
        }
    }
}
