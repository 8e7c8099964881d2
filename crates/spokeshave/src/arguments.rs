//! Values of arguments that several commands take: formats, clouds, durations.
//!
//! Owns how they are written, and how a command says that they are wrong. Which command takes which is `cli`'s to say; what is done with them is the commands'.

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;

/// How a report is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// Text, as wide as the terminal or $COLUMNS
    Table,
    /// For programs
    Json,
    /// The same data as YAML
    Yaml,
}

/// What `operator` launches nodes at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OperatorCloud {
    /// Simulated nodes, for tests and dry runs
    Kwok,
    /// EC2 instances, in the region of AWS_REGION or of the instance it runs on
    Aws,
    /// Azure virtual machines, configured by the environment variables in docs/azure.md; not yet tested on a real subscription
    Azure,
    /// An out-of-process provider, at --provider-socket or --provider-address
    Grpc,
}

/// The providers that can be served to an operator in another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ServedCloud {
    /// Simulated nodes, for tests and dry runs
    Kwok,
    /// EC2 instances, in the region of AWS_REGION or of the instance it runs on
    Aws,
    /// Azure virtual machines, configured by the environment variables in docs/azure.md; not yet tested on a real subscription
    Azure,
}

impl From<ServedCloud> for OperatorCloud {
    fn from(cloud: ServedCloud) -> Self {
        match cloud {
            ServedCloud::Kwok => Self::Kwok,
            ServedCloud::Aws => Self::Aws,
            ServedCloud::Azure => Self::Azure,
        }
    }
}

/// The provider whose nodes a cluster has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CloudProviderName {
    /// Simulated nodes: KWOKNodeClass
    Kwok,
    /// EC2 instances: EC2NodeClass
    Aws,
    /// Azure virtual machines: AKSNodeClass
    Azure,
    /// An out-of-process provider, whose NodeClasses are named by --node-class
    Grpc,
}

/// Clouds that have their own CRDs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DefinitionsOf {
    /// Simulated nodes: KWOKNodeClass and KWOKInstance
    Kwok,
    /// EC2: EC2NodeClass
    Aws,
    /// Azure virtual machines: AKSNodeClass
    Azure,
}

impl From<DefinitionsOf> for spokeshave_api::crds::Cloud {
    fn from(cloud: DefinitionsOf) -> Self {
        match cloud {
            DefinitionsOf::Kwok => Self::Kwok,
            DefinitionsOf::Aws => Self::Aws,
            DefinitionsOf::Azure => Self::Azure,
        }
    }
}

/// Reads a Go duration that is not negative.
pub(crate) fn read_duration(text: &str) -> Result<Duration, String> {
    let duration: spokeshave_api::GoDuration = text.parse().map_err(|error| format!("{error}"))?;
    duration
        .to_std()
        .ok_or_else(|| "it must not be negative".to_owned())
}

/// The same for a flag, with what is expected.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    read_duration(text).map_err(|error| format!("{error}; expected a duration such as 90s or 1h30m"))
}

/// The same for what is done again and again: not more often than once in a second.
pub(crate) fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text)?;
    if interval < Duration::from_secs(1) {
        return Err("it is too short; expected at least 1s".to_owned());
    }
    Ok(interval)
}

/// A mistake in a command line that only the command itself can see: it ends with the status of those that the parser sees.
#[derive(Debug)]
pub(crate) struct Misuse(pub(crate) String);

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Misuse {}
