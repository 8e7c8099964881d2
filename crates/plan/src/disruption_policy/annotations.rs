//! What workloads ask for by annotation, with the ceiling that the policy sets: of a pod's own, its owners' and its namespace's annotation the nearest counts.
//!
//! What cannot be read counts as the most that the ceiling allows, so that a slip of the pen protects, ends by itself, and stops nobody else.

use super::windows::{Windows, time_zone};
use super::workloads::{READ, deployment_of};
use jiff::{SignedDuration, Timestamp};
use spokeshave_api::disruption_policy::{PolicyWindow, WorkloadRules};
use spokeshave_api::{DisruptionPolicy, GoDuration, labels};
use spokeshave_model::snapshot::{PodView, Snapshot};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Longest quiet time that is heard, unless the policy says otherwise.
const QUIET_TIME: SignedDuration = SignedDuration::from_hours(24);
/// Fewest moves a day that may be asked for, unless the policy says otherwise.
const MOVES: i64 = 1;
/// Longest wait for a window, unless the policy says otherwise.
const CLOSED: SignedDuration = SignedDuration::from_hours(7 * 24);
const QUIET_TIME_EXPECTED: &str = "write a duration such as 6h";
const MOVES_EXPECTED: &str = "write a whole number";
/// As many windows as a budget may have, and more text than these take: whoever may annotate a pod must not keep everybody else waiting.
const MOST_WINDOWS: usize = 50;
const MOST_WINDOW_BYTES: usize = 2048;
/// How much is quoted of a value. Durations and numbers that are longer are not read: a pod is looked at in each pass.
const QUOTED: usize = 80;
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// What is asked for one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wishes {
    /// Until when it is left alone, and why.
    pub(super) rests: Option<(Timestamp, String)>,
    /// How many pods of its workload may move within a day, and where that stands.
    pub(super) quota: Option<(i64, String)>,
    /// What cannot be read.
    pub(super) faults: Vec<String>,
}

/// Annotations as one policy hears them.
pub(super) struct Notes<'a> {
    snapshot: &'a Snapshot,
    zone: Option<&'a str>,
    now: Timestamp,
    quiet: SignedDuration,
    moves: i64,
    closed: SignedDuration,
    /// Windows that were asked already: until when they are shut, or what is wrong with them.
    windows: RefCell<BTreeMap<String, Result<Option<Timestamp>, String>>>,
    any_on_pods: bool,
}

impl<'a> Notes<'a> {
    pub(super) fn new(
        snapshot: &'a Snapshot,
        policy: &'a DisruptionPolicy,
        rules: &WorkloadRules,
        now: Timestamp,
    ) -> Self {
        let signed = |duration: &Option<GoDuration>, otherwise| {
            duration
                .as_ref()
                .map_or(otherwise, |duration| duration.to_signed())
        };
        let is_annotated = |pod: &PodView| {
            let annotations = pod.object.metadata.annotations.as_ref();
            annotations.is_some_and(|all| READ.iter().any(|key| all.contains_key(*key)))
        };
        Notes {
            snapshot,
            zone: policy.spec.time_zone.as_deref(),
            now,
            quiet: signed(&rules.maximum_quiet_time, QUIET_TIME),
            moves: rules.minimum_moves_per_day.unwrap_or(MOVES).max(1),
            closed: signed(&rules.maximum_closed, CLOSED),
            windows: RefCell::default(),
            any_on_pods: snapshot.pods.iter().any(is_annotated),
        }
    }

    /// Nobody asks for anything.
    pub(super) fn is_empty(&self) -> bool {
        !self.any_on_pods && self.snapshot.workload_annotations.is_empty()
    }

    /// The nearest annotation of a name: its value, and whose it is.
    fn nearest(&self, pod: &'a PodView, key: &str) -> Option<(&'a str, String)> {
        let meta = &pod.object.metadata;
        if let Some(value) = meta.annotations.as_ref().and_then(|all| all.get(key)) {
            return Some((value, format!("Pod {}", pod.key())));
        }
        if self.snapshot.workload_annotations.is_empty() {
            return None;
        }
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let mut owners = meta.owner_references.iter().flatten();
        let owner = owners.find(|owner| owner.controller == Some(true));
        let own = owner.map(|owner| format!("{}/{namespace}/{}", owner.kind, owner.name));
        let deployment = owner.and_then(|owner| deployment_of(&pod.object, &owner.kind, &owner.name));
        let above = deployment.map(|name| format!("Deployment/{namespace}/{name}"));
        let all = [own, above, Some(format!("Namespace/{namespace}"))];
        all.into_iter().flatten().find_map(|name| {
            let value = self.snapshot.workload_annotations.get(&name)?.get(key)?;
            Some((value.as_str(), name.replacen('/', " ", 1)))
        })
    }

    /// What is asked for a pod.
    pub(super) fn of(&self, pod: &'a PodView) -> Wishes {
        let mut wishes = Wishes::default();
        if let Some((value, whose)) = self.nearest(pod, labels::QUIET_TIME) {
            let asked = quiet_time(value);
            if asked.is_none() {
                wishes.fault(labels::QUIET_TIME, value, &whose, QUIET_TIME_EXPECTED);
            }
            let quiet = asked.unwrap_or(self.quiet).min(self.quiet);
            if let Some(until) = self.lately(pod, quiet) {
                let (begin, rest) = quoted(value);
                let why = format!(
                    "came lately and rests ({} of {whose} is {begin}{rest})",
                    labels::QUIET_TIME
                );
                wishes.rest(until, why);
            }
        }
        if let Some((value, whose)) = self.nearest(pod, labels::MOVES_PER_DAY) {
            let asked = moves_per_day(value);
            if asked.is_none() {
                wishes.fault(labels::MOVES_PER_DAY, value, &whose, MOVES_EXPECTED);
            }
            let quota = asked.unwrap_or(self.moves).max(self.moves);
            let (begin, rest) = quoted(value);
            let why = format!("{} of {whose} is {begin}{rest}", labels::MOVES_PER_DAY);
            wishes.quota = Some((quota, why));
        }
        if let Some((value, whose)) = self.nearest(pod, labels::MOVE_WINDOWS) {
            let key = labels::MOVE_WINDOWS;
            match self.shut_until(value) {
                Ok(None) => {}
                Ok(Some(until)) => {
                    let (begin, rest) = quoted(value);
                    let why = format!("may not move now ({key} of {whose} is {begin}{rest})");
                    wishes.rest(until, why);
                }
                Err(why) => {
                    wishes.fault(key, value, &whose, &why);
                    // Nobody knows when its windows open: they are shut once, for as long as any may be.
                    if let Some(until) = self.lately(pod, self.closed) {
                        let why = format!("may not move now ({key} of {whose} cannot be read)");
                        wishes.rest(until, why);
                    }
                }
            }
        }
        wishes
    }

    /// Until when a pod has been there for less than so long, if that is still to come.
    fn lately(&self, pod: &PodView, length: SignedDuration) -> Option<Timestamp> {
        let came = pod.object.metadata.creation_timestamp.as_ref();
        // Behind a clock that was set back it has only just come.
        let came = came.map_or(self.now, |time| time.0.min(self.now));
        let until = came.saturating_add(length).unwrap_or(Timestamp::MAX);
        (until > self.now).then_some(until)
    }

    /// Until when windows are shut now; `None` when one is open, and when none opens for longer than the ceiling allows.
    fn shut_until(&self, text: &str) -> Result<Option<Timestamp>, String> {
        if let Some(known) = self.windows.borrow().get(text) {
            return known.clone();
        }
        let found = windows(text, self.zone).map(|windows| {
            if windows.is_open(self.now) {
                return None;
            }
            let latest = self.now.saturating_add(self.closed).unwrap_or(Timestamp::MAX);
            windows.next_change(self.now).filter(|opens| *opens <= latest)
        });
        self.windows.borrow_mut().insert(text.to_owned(), found.clone());
        found
    }
}

/// What was expected of the value of an annotation that workloads ask by; `None` where it can be read.
pub fn flaw(key: &str, value: &str) -> Option<String> {
    let is_wrong = match key {
        labels::QUIET_TIME => quiet_time(value).is_none().then_some(QUIET_TIME_EXPECTED),
        labels::MOVES_PER_DAY => moves_per_day(value).is_none().then_some(MOVES_EXPECTED),
        labels::MOVE_WINDOWS => return windows(value, None).err(),
        _ => None,
    };
    is_wrong.map(str::to_owned)
}

/// So much of a value as is told, and whether that is all: whoever may annotate a pod writes it into status, events and conditions otherwise.
fn quoted(value: &str) -> (&str, &'static str) {
    match value.char_indices().nth(QUOTED) {
        Some((end, _)) => (&value[..end], " and so on"),
        None => (value, ""),
    }
}

fn quiet_time(value: &str) -> Option<SignedDuration> {
    if value.len() > QUOTED {
        return None;
    }
    let asked = value.parse::<GoDuration>().ok()?.to_signed();
    (asked >= SignedDuration::ZERO).then_some(asked)
}

fn moves_per_day(value: &str) -> Option<i64> {
    let short = Some(value).filter(|value| value.len() <= QUOTED)?;
    short.parse::<i64>().ok().filter(|asked| *asked >= 0)
}

impl Wishes {
    /// Of several rests the longest counts.
    fn rest(&mut self, until: Timestamp, why: String) {
        if self.rests.as_ref().is_none_or(|(known, _)| *known < until) {
            self.rests = Some((until, why));
        }
    }

    fn fault(&mut self, key: &str, value: &str, whose: &str, expected: &str) {
        let (begin, rest) = quoted(value);
        self.faults.push(format!(
            "{key} of {whose} is {begin:?}{rest}, which cannot be read: {expected}"
        ));
    }
}

/// Reads `Mon-Fri 22:00-06:00; Sat,Sun 00:00-24:00 Europe/Kyiv`: days, one stretch of time, and at the end a time zone, without which the policy's is taken. Days
/// of one entry add up, with a comma or a space between them.
///
/// # Errors
/// What was expected.
pub(super) fn windows(text: &str, zone: Option<&str>) -> Result<Windows, String> {
    let expected = || "write such as \"Mon-Fri 22:00-06:00; Sat,Sun 00:00-24:00 Europe/Kyiv\"".to_owned();
    let mut named = None;
    let mut windows = Vec::new();
    let entries: Vec<&str> = text.split(';').collect();
    if entries.len() > MOST_WINDOWS || text.len() > MOST_WINDOW_BYTES {
        return Err(format!(
            "write at most {MOST_WINDOWS} windows, in at most {MOST_WINDOW_BYTES} bytes"
        ));
    }
    for (position, entry) in entries.iter().enumerate() {
        let mut window = PolicyWindow::default();
        for word in entry.split_whitespace() {
            if let Some((from, to)) = word.split_once('-').filter(|_| word.contains(':')) {
                // Of two stretches one would be left out, and nobody told.
                if !window.from.is_empty() {
                    return Err(expected());
                }
                (window.from, window.to) = (from.to_owned(), to.to_owned());
            } else if DAYS.iter().any(|day| word.starts_with(day)) && window.from.is_empty() {
                window.days.extend(days(word).ok_or_else(expected)?);
            } else if position + 1 == entries.len() && !window.from.is_empty() && named.is_none() {
                named = Some(word);
            } else {
                return Err(expected());
            }
        }
        if window.from.is_empty() {
            return Err(expected());
        }
        windows.push(window);
    }
    let zone = time_zone(named.or(zone))?;
    Windows::read(zone, &windows, &[]).map_err(|faults| {
        let said: Vec<String> = faults.into_iter().map(|fault| fault.message).collect();
        said.join(", ")
    })
}

/// `Mon-Fri` and `Sat,Sun`; a stretch may go past the end of the week.
fn days(text: &str) -> Option<Vec<String>> {
    let place = |name: &str| DAYS.iter().position(|day| *day == name);
    let mut found = Vec::new();
    for part in text.split(',') {
        let (from, to) = match part.split_once('-') {
            Some((from, to)) => (place(from)?, place(to)?),
            None => (place(part)?, place(part)?),
        };
        let mut day = from;
        loop {
            found.push(DAYS[day].to_owned());
            if day == to {
                break;
            }
            day = (day + 1) % DAYS.len();
        }
    }
    Some(found)
}
