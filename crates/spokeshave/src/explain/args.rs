//! The arguments of `explain`.

use clap::Args;

use crate::arguments::OutputFormat;
use crate::plan::SourceArgs;

/// Shown after the help.
pub(crate) const EXAMPLES: &str = "\
Examples:
  spokeshave explain node ip-10-0-1-17              why it is kept, or how far its termination has progressed
  spokeshave explain nodepool/default               limits, budgets now and when they open
  spokeshave explain pod -n shop web-1              why it is pending, or whether it may be moved
  spokeshave explain node n1 -f dump.yaml -o json   from a file, for programs; docs/operations.md lists every field

It is read-only.";

/// Arguments of `explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// A kind (node, nodeclaim, nodepool, pod) and a name; KIND/NAME, NAMESPACE/POD and a NAME alone work too
    #[arg(value_name = "KIND NAME", num_args = 1..=2, required = true)]
    pub(crate) object: Vec<String>,
    /// Namespace of the pod
    #[arg(short = 'n', long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// Where the state comes from
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// What to print
    #[arg(short = 'o', long, value_name = "FORMAT", value_enum, default_value = "table")]
    pub(crate) output: OutputFormat,
}
