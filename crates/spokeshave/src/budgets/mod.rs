//! `spokeshave budgets`: what the budgets of each NodePool and DisruptionPolicies allow, when, and what is wrong with them.
//!
//! It gathers NodePools and node counts from files or from the cluster, asks `plan::calendar` and `plan::budget_lint`, and prints. It
//! decides nothing and changes nothing.

mod args;
mod report;
mod source;
mod table;

#[cfg(test)]
mod tests;

use anyhow::{Result, bail};
use jiff::{SignedDuration, Timestamp};
use spokeshave_plan::calendar::Window;

use crate::arguments::OutputFormat;
use crate::text::visible;
pub(crate) use args::{BudgetsArgs, EXAMPLES};
use report::Report;

/// What the command has to say: the text for standard output, and whether there is a finding of level error.
pub(crate) struct Answer {
    /// For standard output.
    pub(crate) text: String,
    /// At least one finding of level error.
    pub(crate) has_errors: bool,
}

/// Runs the command.
///
/// # Errors
/// A file that cannot be read, a cluster that does not answer, a NodePool that does not exist.
pub(crate) async fn run(args: BudgetsArgs) -> Result<Answer> {
    let (found, now) = if args.filenames.is_empty() {
        source::from_cluster(&args.cluster, args.now).await?
    } else {
        let now = args.now.unwrap_or_else(Timestamp::now);
        (source::from_files(&args.filenames, now)?, now)
    };
    let source::Found {
        pools,
        policies,
        refused,
    } = found;
    let known = report::known(&pools, args.nodes);
    let pools = select(pools, &args.node_pools)?;
    let range = Window {
        from: now,
        until: now.saturating_add(SignedDuration::from_hours(24 * i64::from(args.days)))?,
    };
    let report = Report::new(&pools, &policies, refused, &known, args.nodes, range);
    let text = match args.output {
        OutputFormat::Table => visible(&table::render(&report)).into_owned(),
        OutputFormat::Json => format!("{}\n", serde_json::to_string_pretty(&report)?),
        OutputFormat::Yaml => serde_saphyr::to_string(&report)?,
    };
    Ok(Answer {
        text,
        has_errors: report.has_errors(),
    })
}

/// The requested pools; all if none was named.
fn select(found: Vec<source::Pool>, wanted: &[String]) -> Result<Vec<source::Pool>> {
    let wanted: Vec<&str> = wanted
        .iter()
        .map(|name| name.strip_prefix("nodepool/").unwrap_or(name))
        .collect();
    for name in &wanted {
        if !found.iter().any(|pool| pool.name == *name) {
            let names: Vec<&str> = found.iter().map(|pool| pool.name.as_str()).collect();
            bail!("there is no NodePool {name:?}; there are: {}", names.join(", "));
        }
    }
    if found.is_empty() {
        bail!("there is no NodePool");
    }
    Ok(found
        .into_iter()
        .filter(|pool| wanted.is_empty() || wanted.contains(&pool.name.as_str()))
        .collect())
}
