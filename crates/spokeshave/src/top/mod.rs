//! `spokeshave top`: the nodes in a terminal, with requests, price and what keeps each; and as a table that is printed once.
//!
//! The layout is computed in `frame`, `columns` and `panes` (`pools`, `commands`), of the list in `listing` and the pieces in `line`, without a terminal; `keys` turns
//! keys into changes of the view; `screen` draws where something has changed, new views at the `pace`; `terminal` owns the terminal and gives it back; `without` works
//! out what-ifs beside it.

mod columns;
mod commands;
mod frame;
mod keys;
mod line;
mod listing;
mod pace;
mod panes;
mod pools;
mod screen;
mod selection;
mod terminal;
mod without;

#[cfg(test)]
mod tests;

use anyhow::Result;
use clap::{Args, ValueEnum};
use spokeshave_web::Board;

use crate::look::{Source, once};
use crate::plan::SourceArgs;
use columns::Column;
use frame::{Asked, Size, Sort};
use selection::Selection;

/// Shown after the help.
pub(crate) const EXAMPLES: &str = "\
Examples:
  spokeshave top                                    the cluster of the current kubeconfig; ? lists the keys
  spokeshave top --once --sort saves | head         nodes whose removal would save most, for a pipe
  spokeshave top --columns name,age,verdict -l gpu  nodes with a label gpu, in three columns
  spokeshave top --once -o json                     the view for programs; docs/page.md lists every field
  spokeshave top -f dump.yaml                       a dump

It is read-only.";

/// Arguments of `top`.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Where the state comes from
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Print one table and exit
    #[arg(long)]
    pub(crate) once: bool,
    /// What to print
    #[arg(
        short = 'o',
        long,
        value_name = "FORMAT",
        value_enum,
        default_value = "table",
        requires = "once"
    )]
    pub(crate) output: TopOutput,
    /// Columns to show, separated by commas, in this order; by default all but saves, as far as there is room
    #[arg(long, value_name = "COLUMN", value_enum, value_delimiter = ',')]
    pub(crate) columns: Vec<Column>,
    /// What to sort by
    #[arg(long, value_name = "COLUMN", value_enum, default_value = "name")]
    pub(crate) sort: Sort,
    /// Only nodes whose labels match, such as team=shop,!gpu; sums are of all nodes, and JSON has them all
    #[arg(
        short = 'l',
        long,
        value_name = "SELECTOR",
        value_parser = Selection::parse,
        default_value = ""
    )]
    pub(crate) selector: Selection,
    /// Only nodes with this text in name, NodePool, type, zone or verdict; of those that the selector leaves
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) filter: String,
    /// Disable colors; so does NO_COLOR
    #[arg(long)]
    pub(crate) no_color: bool,
}

/// What `--once` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TopOutput {
    /// As wide as the terminal or $COLUMNS
    Table,
    /// With no column truncated
    Wide,
    /// The view, for programs
    Json,
}

/// Runs the command.
///
/// # Errors
/// The dump or the catalog cannot be read, the cluster does not answer, or there is no terminal.
pub(crate) async fn run(args: TopArgs) -> Result<()> {
    let mut source = Source::of(&args.source).await?;
    let asked = Asked {
        columns: args.columns.clone(),
        sort: args.sort,
        selection: args.selector.clone(),
        filter: args.filter.clone(),
        is_ascii: !terminal::speaks_utf8(),
        ..Asked::default()
    };
    if args.once {
        let shown = once(&mut source).await?;
        let text = match args.output {
            TopOutput::Json => format!("{}\n", serde_json::to_string(&*shown.view)?),
            output => {
                let width = match output {
                    TopOutput::Wide => usize::MAX,
                    _ => crate::text::width(),
                };
                let size = Size {
                    width,
                    height: usize::MAX,
                };
                line::plain(&frame::draw(&shown, &asked, size, None))
            }
        };
        return crate::print(&text);
    }
    let title = source.title(&args.source);
    terminal::run(source, Board::new(), asked, !args.no_color, title).await
}
