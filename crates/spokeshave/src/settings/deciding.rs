//! The settings by which an operator decides, for commands that tell what it would do.
//!
//! Owns which settings these are, how they are found in what starts a container, and how those of an operator and of a command are put together. It asks no cluster;
//! what a setting means is the table's.

use std::collections::BTreeMap;

use anyhow::Result;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use super::reader::{Environment, Row, SettingsArgs, TABLE};
use super::{FeatureGates, Settings};
use crate::arguments::Misuse;

/// Those that a command takes as flags, too.
const FLAGS: [&str; 7] = [
    GATES,
    "preference_policy",
    "min_values_policy",
    "batch_max_duration",
    "consolidation_replacements",
    "vm_memory_overhead_percent",
    "reserved_enis",
];
/// Those that a command has no such flag for: they name files where the operator runs, or are of a time that only a simulation has.
const OTHERS: [&str; 3] = [
    "scheduler_config",
    "instance_types_file_path",
    "batch_idle_duration",
];
/// The one that has several parts, each of which may be given.
const GATES: &str = "feature_gates";
/// Its variable.
const GATES_VARIABLE: &str = "FEATURE_GATES";

fn rows(fields: &'static [&'static str]) -> impl Iterator<Item = &'static Row> {
    TABLE.iter().filter(move |row| fields.contains(&row.field))
}

/// The environment variables of the settings by which is decided, with and without a flag.
pub(crate) fn deciding_variables() -> impl Iterator<Item = &'static str> {
    rows(&FLAGS).chain(rows(&OTHERS)).map(|row| row.variable.as_str())
}

/// Settings that are given to a command itself, by flag or variable.
#[derive(Clone, Debug, Default)]
pub(crate) struct DecidingArgs(SettingsArgs);

impl DecidingArgs {
    /// What is given, by variable.
    pub(crate) fn given(&self) -> impl Iterator<Item = (&'static str, &str)> {
        rows(&FLAGS).filter_map(move |row| {
            let text = self.0.given.get(row.field)?;
            Some((row.variable.as_str(), text.as_str()))
        })
    }

    /// Whether each can be read.
    ///
    /// # Errors
    /// Names the flag whose value is malformed, and what was expected: a [`Misuse`].
    pub(crate) fn check(&self) -> Result<()> {
        match Settings::resolve(&self.0, &Environment::new()) {
            Ok(_) => Ok(()),
            Err(error) => Err(Misuse(error.to_string()).into()),
        }
    }

    /// What is said of feature gates.
    fn gates(&self) -> &str {
        self.0.given.get(GATES).map_or("", String::as_str)
    }
}

impl FromArgMatches for DecidingArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = rows(&FLAGS).filter_map(|row| {
            let text = matches.get_one::<String>(row.field)?;
            // An empty variable counts as absent, as for the operator.
            (!text.is_empty()).then(|| (row.field, text.clone()))
        });
        Ok(Self(SettingsArgs {
            given: given.collect(),
        }))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for DecidingArgs {
    fn augment_args(command: Command) -> Command {
        rows(&FLAGS).fold(command, |command, row| {
            let argument = Arg::new(row.field)
                .long(row.flag.as_str())
                .value_name(row.value_name)
                .help(row.about.as_str())
                .help_heading("Settings of the operator, by default those with which it runs")
                .env(row.variable.as_str())
                .hide_env(true);
            command.arg(argument)
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// What the words that start a container say.
#[derive(Debug, Default)]
pub(crate) struct Words {
    /// The settings among them, by variable.
    pub(crate) given: Environment,
    /// Flags that `command` does not know, without their values.
    pub(crate) unknown: Vec<String>,
}

impl Words {
    /// Reads words as an operator would. `command` has all of its arguments. Karpenter's may have one dash, and a boolean no value.
    pub(crate) fn read(words: &[String], command: &Command) -> Self {
        let mut read = Self::default();
        let mut words = words.iter().map(String::as_str).peekable();
        while let Some(word) = words.next() {
            let stripped = word.strip_prefix("--").or_else(|| word.strip_prefix('-'));
            // Others are the program, its command, and values of what is not known.
            let Some(flag) = stripped.filter(|flag| !flag.is_empty()) else {
                continue;
            };
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (flag, None),
            };
            let known = command
                .get_arguments()
                .find(|argument| argument.get_long() == Some(name));
            let Some(known) = known else {
                let as_written = word.split('=').next().unwrap_or(word);
                read.unknown.push(as_written.to_owned());
                continue;
            };
            if !known.get_action().takes_values() {
                continue;
            }
            let value = value.or_else(|| words.next_if(|next| !next.starts_with("--")));
            if let Some(row) = TABLE.iter().find(|row| row.flag == name) {
                let value = value.unwrap_or("true").to_owned();
                read.given.insert(row.variable.clone(), value);
            }
        }
        read
    }
}

/// Settings that were put together.
#[derive(Debug)]
pub(crate) struct PutTogether {
    /// The settings.
    pub(crate) settings: Settings,
    /// Texts of what was given, by variable.
    pub(crate) given: BTreeMap<String, String>,
    /// What of the operator's settings cannot be read, a sentence each.
    pub(crate) unreadable: Vec<String>,
}

/// Those of an operator, by variable, under those that a command was given. What of the operator's cannot be read counts as absent, one by one.
///
/// # Errors
/// One that the command was given is malformed.
pub(crate) fn put_together(operator: &Environment, own: &DecidingArgs) -> Result<PutTogether> {
    own.check()?;
    let mut unreadable = Vec::new();
    let mut theirs = Environment::new();
    for variable in deciding_variables() {
        let Some(text) = operator.get(variable).filter(|text| !text.is_empty()) else {
            continue;
        };
        let one = if variable == GATES_VARIABLE {
            known_gates(text, &mut unreadable)
        } else {
            text.clone()
        };
        let alone = Environment::from([(variable.to_owned(), one.clone())]);
        match Settings::resolve(&SettingsArgs::default(), &alone) {
            Ok(_) => drop(theirs.insert(variable.to_owned(), one)),
            Err(error) => unreadable.push(format!("{error}; taken as absent")),
        }
    }
    theirs.retain(|_, text| !text.is_empty());
    let mut settings = Settings::resolve(&own.0, &theirs)?;
    let mut given = theirs;
    // Each gate is a setting of its own.
    let gates = given.get(GATES_VARIABLE).map_or("", String::as_str).to_owned();
    let both = [gates.as_str(), own.gates()];
    let both: Vec<&str> = both.into_iter().filter(|text| !text.is_empty()).collect();
    let both = both.join(",");
    settings.feature_gates = FeatureGates::default().with(&both).map_err(anyhow::Error::msg)?;
    let own = own
        .given()
        .map(|(variable, text)| (variable.to_owned(), text.to_owned()));
    given.extend(own);
    if !both.is_empty() {
        given.insert(GATES_VARIABLE.to_owned(), both);
    }
    Ok(PutTogether {
        settings,
        given,
        unreadable,
    })
}

/// The gates of an operator that are known here; a newer one may have others.
fn known_gates(text: &str, unreadable: &mut Vec<String>) -> String {
    let mut known = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        match FeatureGates::default().with(part) {
            Ok(_) => known.push(part),
            Err(why) => unreadable.push(format!("{GATES_VARIABLE}: {why}; {part} counts as absent")),
        }
    }
    known.join(",")
}

/// What is said of one gate; none where it is not mentioned.
pub(crate) fn said_of_gate(text: &str, gate: fn(&FeatureGates) -> bool) -> Option<bool> {
    let of = |all: bool| {
        let gates = FeatureGates {
            node_repair: all,
            reserved_capacity: all,
            spot_to_spot_consolidation: all,
            node_overlay: all,
            static_capacity: all,
            capacity_buffer: all,
        };
        gates.with(text).ok().map(|gates| gate(&gates))
    };
    let (on, off) = (of(true), of(false));
    on.filter(|_| on == off)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operator(pairs: &[(&str, &str)]) -> Environment {
        let pairs = pairs.iter();
        pairs
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
            .collect()
    }

    fn own(field: &'static str, text: &str) -> DecidingArgs {
        DecidingArgs(SettingsArgs {
            given: BTreeMap::from([(field, text.to_owned())]),
        })
    }

    #[test]
    fn every_setting_that_decides_is_in_the_table() {
        assert_eq!(deciding_variables().count(), FLAGS.len() + OTHERS.len());
        assert!(deciding_variables().any(|variable| variable == GATES_VARIABLE));
    }

    #[test]
    fn p_203_each_gate_of_the_operator_holds_until_the_command_names_it() {
        let theirs = operator(&[("FEATURE_GATES", "NodeOverlay=true,SpotToSpotConsolidation=true")]);
        let own = own("feature_gates", "SpotToSpotConsolidation=false");
        let together = put_together(&theirs, &own).expect("both can be read");
        let gates = together.settings.feature_gates;
        assert!(gates.node_overlay && !gates.spot_to_spot_consolidation && gates.reserved_capacity);
        let text = "NodeOverlay=true,SpotToSpotConsolidation=true,SpotToSpotConsolidation=false";
        assert_eq!(together.given["FEATURE_GATES"], text);
        let of = |gate: fn(&FeatureGates) -> bool| said_of_gate(text, gate);
        assert_eq!(of(|gates| gates.node_overlay), Some(true));
        assert_eq!(of(|gates| gates.spot_to_spot_consolidation), Some(false));
        assert_eq!(of(|gates| gates.capacity_buffer), None);
    }

    #[test]
    fn gates_are_written_as_they_are_given() {
        assert_eq!(FeatureGates::default().to_string(), "");
        for text in ["NodeOverlay=true", "ReservedCapacity=false,CapacityBuffer=true"] {
            let gates = FeatureGates::default().with(text).expect("gates");
            assert_eq!(gates.to_string(), text);
        }
    }

    #[test]
    fn what_of_the_operator_cannot_be_read_is_named_and_hides_nothing_else() {
        let theirs = operator(&[
            ("FEATURE_GATES", "NodeOverlay=true,Teleport=true"),
            ("MIN_VALUES_POLICY", "Sometimes"),
            ("BATCH_MAX_DURATION", "30s"),
            ("PREFERENCE_POLICY", ""),
            ("METRICS_PORT", "none"),
        ]);
        let together = put_together(&theirs, &DecidingArgs::default()).expect("the rest can be read");
        assert!(together.settings.feature_gates.node_overlay);
        assert_eq!(together.settings.batch_max_duration.as_secs(), 30);
        let given: Vec<&str> = together.given.keys().map(String::as_str).collect();
        assert_eq!(given, ["BATCH_MAX_DURATION", "FEATURE_GATES"]);
        let [policy, gate] = &together.unreadable[..] else {
            panic!("{:?}", together.unreadable);
        };
        assert!(gate.contains("Teleport"), "{gate}");
        assert!(
            policy.contains("MIN_VALUES_POLICY") && policy.contains("Sometimes"),
            "{policy}"
        );
    }

    #[test]
    fn what_a_command_is_given_wins_and_has_to_be_readable() {
        let theirs = operator(&[("CONSOLIDATION_REPLACEMENTS", "3"), ("RESERVED_ENIS", "1")]);
        let two = own("consolidation_replacements", "2");
        let settings = put_together(&theirs, &two).expect("both can be read").settings;
        assert_eq!(
            (settings.consolidation_replacements, settings.reserved_enis),
            (2, 1)
        );
        let none = own("consolidation_replacements", "none");
        let error = put_together(&theirs, &none)
            .expect_err("it is no number")
            .to_string();
        assert!(error.contains("--consolidation-replacements"), "{error}");
    }

    #[test]
    fn words_are_read_as_clap_and_as_go_write_them() {
        let command = SettingsArgs::augment_args(Command::new("operator"))
            .arg(Arg::new("shadow").long("shadow").action(clap::ArgAction::SetTrue));
        let words = [
            "operator",
            "--feature-gates=NodeOverlay=true",
            "-min-values-policy",
            "BestEffort",
            "--memory-limit",
            "-1",
            "--enable-profiling",
            "--shadow",
            "--teleport",
            "yes",
            "--batch-max-duration",
            "20s",
        ];
        let read = Words::read(&words.map(str::to_owned), &command);
        let given: Vec<(&str, &str)> = read
            .given
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_str()))
            .collect();
        assert_eq!(
            given,
            [
                ("BATCH_MAX_DURATION", "20s"),
                ("ENABLE_PROFILING", "true"),
                ("FEATURE_GATES", "NodeOverlay=true"),
                ("MEMORY_LIMIT", "-1"),
                ("MIN_VALUES_POLICY", "BestEffort"),
            ]
        );
        assert_eq!(read.unknown, ["--teleport"]);
    }
}
