//! The spokeshave binary: reads arguments and the environment, and runs a command.

mod adopt;
mod arguments;
mod azure;
mod budgets;
mod cli;
mod clouds;
mod cluster;
mod connection;
mod convert;
mod doctor;
mod explain;
mod field;
mod freeze;
mod lines;
mod log_lines;
mod logging;
mod look;
mod manifest_files;
mod operate;
mod plan;
mod providers;
mod remote_provider;
mod rollout;
mod same_file;
mod scheduler_config;
mod settings;
mod shadow;
mod signals;
mod simulate;
mod text;
mod top;
#[cfg(feature = "embedded")]
mod up;
mod web;
mod yaml;

use std::io::{BufWriter, StdoutLock, Write as _};
use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory as _, FromArgMatches as _};

use crate::arguments::Misuse;
use crate::cli::{Cli, Command};

/// Many small objects come and go here; this allocator gives memory back and is fast at it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let matches = Cli::called_as(std::env::args_os().next().as_deref()).get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    text::follow_terminal(std::env::var("COLUMNS").ok().as_deref());
    match run(cli) {
        Ok(code) => code,
        Err(error) => {
            text::say(&format!("error: {}", shown(&error)));
            match error.is::<Misuse>() {
                true => ExitCode::from(MISUSE),
                false => ExitCode::FAILURE,
            }
        }
    }
}

/// An error and its causes, each once: libraries repeat in one text what its cause says again.
fn shown(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let (own, is_last) = match cause.downcast_ref::<kube::Error>() {
            Some(kube::Error::Api(status)) => (status.message.clone(), true),
            Some(kube::Error::Service(_)) => continue,
            _ => (cause.to_string(), false),
        };
        if !text.contains(&own) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&own);
        }
        if is_last {
            break;
        }
    }
    text
}

/// The command line is wrong.
const MISUSE: u8 = 2;

/// A command has found what is wrong for certain.
const FINDINGS: u8 = 3;

fn run(cli: Cli) -> Result<ExitCode> {
    match cli.command {
        #[cfg(feature = "embedded")]
        Command::Up(args) => {
            use_small_pages();
            runtime()?.block_on(up::run(args))
        }
        Command::Operator(args) => {
            use_small_pages();
            let environment = std::env::vars().collect();
            runtime()?.block_on(operate::run(args, &environment))
        }
        Command::Plan(args) => {
            let planned = runtime()?.block_on(plan::run(&args))?;
            print_with(|out| planned.write(out))
        }
        Command::Explain(args) => print(&runtime()?.block_on(explain::run(&args))?),
        Command::Budgets(args) => {
            let answer = runtime()?.block_on(budgets::run(args))?;
            print(&answer.text)?;
            return Ok(verdict(answer.has_errors));
        }
        Command::Doctor(args) => {
            let answer = runtime()?.block_on(doctor::run(&args))?;
            print(&answer.text)?;
            return Ok(verdict(answer.has_errors));
        }
        Command::Web(args) => {
            use_small_pages();
            runtime()?.block_on(web::run(args))
        }
        Command::ProviderSanity(args) => {
            let answer = runtime()?.block_on(providers::sanity(&args))?;
            print(&answer.text)?;
            return Ok(verdict(answer.has_errors));
        }
        Command::ProviderServe(args) => {
            let environment = std::env::vars().collect();
            runtime()?.block_on(providers::serve(args, &environment))
        }
        Command::Simulate(args) => return runtime()?.block_on(simulate::run(args)),
        Command::Record(args) => runtime()?.block_on(simulate::record(args)),
        Command::Top(args) => runtime()?.block_on(top::run(args)),
        Command::Adopt(args) => {
            let answer = runtime()?.block_on(adopt::run(&args))?;
            print(&answer.text)?;
            return Ok(verdict(answer.is_blocked));
        }
        Command::Convert(args) => {
            let answer = runtime()?.block_on(convert::run(args))?;
            print(&answer.text)?;
            return Ok(verdict(answer.has_errors));
        }
        Command::Freeze(args) => print(&runtime()?.block_on(freeze::freeze(&args))?),
        Command::Rollout(args) => print(&runtime()?.block_on(rollout::run(&args))?),
        Command::Thaw(args) => print(&runtime()?.block_on(freeze::thaw(&args))?),
        Command::Crds { cloud_provider } => print(&spokeshave_api::crds::crds_yaml_of(cloud_provider.into())),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "spokeshave", &mut script);
            print(&String::from_utf8_lossy(&script))
        }
        Command::Man { command } => print(&manual(command.as_deref())?),
    }
    .map(|()| ExitCode::SUCCESS)
}

/// The manual page of the program or of one of its commands, as troff.
///
/// # Errors
/// There is no such command.
fn manual(name: Option<&str>) -> Result<String> {
    let mut program = Cli::command();
    program.build();
    let about = match name {
        None => program,
        Some(name) => {
            let found = program.find_subcommand(name).cloned();
            found.ok_or_else(|| Misuse(format!("there is no command {name:?}; see spokeshave --help")))?
        }
    };
    let mut page = Vec::new();
    clap_mangen::Man::new(about).render(&mut page)?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

fn verdict(has_errors: bool) -> ExitCode {
    if has_errors {
        ExitCode::from(FINDINGS)
    } else {
        ExitCode::SUCCESS
    }
}

/// The allocator asks for huge pages, which what runs for long and rests most of the time would touch a little of and keep whole.
fn use_small_pages() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "huge pages stay in use");
    }
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

/// Prints a text.
fn print(text: &str) -> Result<()> {
    print_with(|out| out.write_all(text.as_bytes()))
}

/// Data is written to standard output; a closed pipe is not an error.
fn print_with(write: impl FnOnce(&mut BufWriter<StdoutLock<'_>>) -> std::io::Result<()>) -> Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
