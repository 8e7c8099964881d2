//! Values of arguments that several commands take: formats, clouds, durations.
//!
//! Owns how they are written. Which command takes which is `cli`'s to say; what is done with them is the commands'.

use std::time::Duration;

use clap::ValueEnum;

/// How a report is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// For people, as wide as the terminal, or as COLUMNS says
    Table,
    /// For machines
    Json,
    /// For machines that people look over the shoulder of
    Yaml,
}

/// What `operator` launches nodes at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OperatorCloud {
    /// Nodes without machines, for tests and rehearsals
    Kwok,
    /// EC2 instances, in the region of AWS_REGION or of the machine
    Aws,
    /// Azure's virtual machines, by the environment that docs/azure.md lists; not run on a subscription yet
    Azure,
    /// A provider that is a process of its own, at --provider-socket or --provider-address
    Grpc,
}

/// The providers that can be served to an operator in another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ServedCloud {
    /// Nodes without machines, for tests and rehearsals
    Kwok,
    /// EC2 instances, in the region of AWS_REGION or of the machine
    Aws,
    /// Azure's virtual machines, by the environment that docs/azure.md lists; not run on a subscription yet
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

/// The cloud providers of this build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CloudProviderName {
    /// Nodes without machines, for tests and rehearsals
    Kwok,
    /// EC2 instances, in the region of AWS_REGION or of the machine
    Aws,
}

/// Clouds that have kinds of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DefinitionsOf {
    /// Nodes without machines: KWOKNodeClass and KWOKInstance
    Kwok,
    /// EC2: EC2NodeClass
    Aws,
    /// Azure's virtual machines: AKSNodeClass
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
        .ok_or_else(|| "it cannot be negative here".to_owned())
}

/// The same for a flag, with what is expected.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    read_duration(text).map_err(|error| format!("{error}; expected a duration such as 90s or 1h30m"))
}
