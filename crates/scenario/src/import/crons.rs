//! When the CronJobs of a recording run, and what is said of those whose schedule or time zone nobody can read.
//!
//! Owns the sentences. Kubernetes takes schedules that a simulation does not follow, such as `@every 30m`.

use std::collections::BTreeMap;

use jiff::tz::TimeZone;
use spokeshave_api::Cron;

/// Namespace and name of a CronJob.
type Name = (String, String);

/// CronJobs that do otherwise than they say, with what they say.
#[derive(Debug, Default)]
pub(crate) struct Crons {
    /// By a schedule that cannot be read.
    unread: BTreeMap<Name, String>,
    /// By the clocks of a time zone that nobody knows.
    nowhere: BTreeMap<Name, String>,
}

impl Crons {
    /// When a CronJob runs, and by whose clocks: by UTC where it names no time zone, or one that nobody knows. None for one that never runs, because its
    /// schedule cannot be read.
    pub(crate) fn schedule(
        &mut self,
        name: &Name,
        schedule: &str,
        time_zone: Option<&str>,
    ) -> Option<(Cron, TimeZone)> {
        let Ok(cron) = schedule.parse::<Cron>() else {
            self.unread.insert(name.clone(), schedule.to_owned());
            return None;
        };
        let Some(asked) = time_zone else {
            return Some((cron, TimeZone::UTC));
        };
        let zone = TimeZone::get(asked).unwrap_or_else(|_| {
            self.nowhere.insert(name.clone(), asked.to_owned());
            TimeZone::UTC
        });
        Some((cron, zone))
    }

    /// What is said of them, in sentences.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(((namespace, name), schedule)) = self.unread.first_key_value() {
            notes.push(format!(
                "{} CronJobs have a schedule that is not simulated, the first of them {namespace}/{name} with {schedule:?}: they never run",
                self.unread.len()
            ));
        }
        if let Some(((namespace, name), zone)) = self.nowhere.first_key_value() {
            notes.push(format!(
                "{} CronJobs have a time zone that is not known, the first of them {namespace}/{name} with {zone:?}: they run by UTC",
                self.nowhere.len()
            ));
        }
        notes
    }
}
