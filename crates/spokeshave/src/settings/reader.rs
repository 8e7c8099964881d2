//! How a setting is found and read: the flag, else the variable, else the default.
//!
//! Owns the rule that a flag wins, that an empty variable counts as absent, what counts as a boolean, the words of errors, and how clap learns of the table. It
//! knows no setting by name.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::{Result, anyhow};
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use crate::arguments::read_duration;

/// The environment, as a value: only `main` reads the real one.
pub(crate) type Environment = BTreeMap<String, String>;

type Parse<T> = Box<dyn Fn(&str) -> Result<T, String>>;

/// How the text of one setting becomes its value.
pub(crate) struct Reader<T> {
    expected: String,
    default: &'static str,
    /// The default as help shows it; nothing is shown for an empty one.
    shown: &'static str,
    parse: Parse<T>,
    /// Where the text of a variable may be what that of a flag may not.
    of_variable: Option<Parse<T>>,
}

impl<T> Reader<T> {
    /// Help shows this instead of the default.
    pub(super) fn shown_as(self, shown: &'static str) -> Self {
        Self { shown, ..self }
    }
}

/// Reads a text by a function; `expected` says in errors what it takes.
pub(super) fn parsed<T, E: Display>(
    expected: impl Into<String>,
    default: &'static str,
    parse: impl Fn(&str) -> Result<T, E> + 'static,
) -> Reader<T> {
    Reader {
        expected: expected.into(),
        default,
        shown: default,
        parse: Box::new(move |text| parse(text).map_err(|error| error.to_string())),
        of_variable: None,
    }
}

/// Any text.
pub(super) fn text(default: &'static str) -> Reader<String> {
    parsed("a text", default, |text| Ok::<_, String>(text.to_owned()))
}

/// A number of any type.
pub(super) fn number<T: FromStr<Err: Display> + 'static>(
    expected: &'static str,
    default: &'static str,
) -> Reader<T> {
    parsed(expected, default, str::parse::<T>)
}

/// A whole number from one on.
pub(super) fn positive(expected: &'static str, default: &'static str) -> Reader<u32> {
    parsed(expected, default, |text| {
        text.parse::<NonZeroU32>().map(NonZeroU32::get)
    })
}

/// `true` or `false`, as upstream's flags; a variable may have any spelling that upstream takes there.
pub(super) fn boolean(default: &'static str) -> Reader<bool> {
    let of_flag = |text: &str| match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("not a boolean"),
    };
    Reader {
        of_variable: Some(Box::new(|text: &str| {
            parse_bool(text).ok_or_else(|| "not a boolean".to_owned())
        })),
        ..parsed("true or false", default, of_flag)
    }
}

/// Go's `strconv.ParseBool`, by which upstream reads variables and feature gates.
pub(crate) fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// A Go duration that is not negative.
pub(super) fn duration(default: &'static str) -> Reader<Duration> {
    parsed("a duration such as 10s", default, read_duration)
}

/// One of some words.
pub(super) fn choice<T: Copy + 'static>(
    choices: &'static [(&'static str, T)],
    default: &'static str,
) -> Reader<T> {
    let names: Vec<&str> = choices
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| !name.is_empty())
        .collect();
    parsed(format!("one of {}", names.join(", ")), default, move |text| {
        let found = choices.iter().find(|(name, _)| *name == text);
        found.map(|(_, choice)| *choice).ok_or("unknown choice")
    })
}

/// The same, where no text is no value.
pub(super) fn optional<T: 'static>(reader: Reader<T>) -> Reader<Option<T>> {
    let parse = reader.parse;
    Reader {
        expected: reader.expected,
        default: "",
        shown: "",
        parse: Box::new(move |text| match text {
            "" => Ok(None),
            text => parse(text).map(Some),
        }),
        of_variable: None,
    }
}

/// A setting as the command line shows it.
pub(crate) struct Row {
    pub(super) field: &'static str,
    pub(super) value_name: &'static str,
    pub(super) flag: String,
    pub(super) variable: String,
    /// The help without the default.
    pub(super) about: String,
    help: String,
    #[cfg(test)]
    pub(super) default: &'static str,
}

impl Row {
    pub(super) fn new<T>(
        field: &'static str,
        value_name: &'static str,
        reader: &Reader<T>,
        help: &'static str,
    ) -> Self {
        let variable = variable_of(field);
        let default = reader.shown;
        let shown = match default {
            "" => String::new(),
            default => format!(" [default: {default}]"),
        };
        Self {
            field,
            value_name,
            flag: flag_of(field),
            about: format!("{help} [env: {variable}]"),
            help: format!("{help} [env: {variable}]{shown}"),
            variable,
            #[cfg(test)]
            default,
        }
    }

    /// Flag and variable.
    #[cfg(test)]
    pub(super) fn names(&self) -> (&str, String) {
        (&self.flag, self.variable.clone())
    }
}

fn flag_of(field: &str) -> String {
    field.replace('_', "-")
}

fn variable_of(field: &str) -> String {
    field.to_uppercase()
}

pub(super) static TABLE: LazyLock<Vec<Row>> = LazyLock::new(super::table);

/// The flags as typed. What is absent is decided by the environment.
#[derive(Clone, Debug, Default)]
pub(crate) struct SettingsArgs {
    pub(super) given: BTreeMap<&'static str, String>,
}

impl FromArgMatches for SettingsArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = TABLE.iter().filter_map(|row| {
            let text = matches.get_one::<String>(row.field)?;
            Some((row.field, text.clone()))
        });
        Ok(Self {
            given: given.collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for SettingsArgs {
    fn augment_args(command: Command) -> Command {
        let command = command.next_help_heading("Settings that Karpenter knows too");
        TABLE.iter().fold(command, |command, row| {
            let argument = Arg::new(row.field)
                .long(row.flag.as_str())
                .value_name(row.value_name)
                .help(row.help.as_str())
                .allow_negative_numbers(true);
            command.arg(argument)
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// Where settings are looked up.
pub(super) struct Lookup<'a> {
    pub(super) args: &'a SettingsArgs,
    pub(super) environment: &'a Environment,
}

impl Lookup<'_> {
    /// The flag, else the variable, else the default; an empty variable counts as absent, as in a Helm chart with an empty value.
    pub(super) fn read<T>(&self, field: &str, reader: &Reader<T>) -> Result<T> {
        let variable = variable_of(field);
        let from_environment = self.environment.get(&variable).filter(|text| !text.is_empty());
        let of_variable = reader.of_variable.as_ref().unwrap_or(&reader.parse);
        let (origin, text, parse) = match (self.args.given.get(field), from_environment) {
            (Some(text), _) => (format!("flag --{}", flag_of(field)), text.as_str(), &reader.parse),
            (None, Some(text)) => {
                let origin = format!("environment variable {variable}");
                (origin, text.as_str(), of_variable)
            }
            (None, None) => (format!("default of {variable}"), reader.default, &reader.parse),
        };
        parse(text).map_err(|error| {
            let expected = &reader.expected;
            anyhow!("{origin}: invalid value {text:?}: {error}; expected {expected}")
        })
    }
}
