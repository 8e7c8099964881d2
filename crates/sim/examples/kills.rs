//! Runs every scenario of invariant 37 with a kill at every write: `cargo run --release -p spokeshave-sim --example kills -- [STORY] [--at WRITE]`.
//!
//! The stories whose names begin with `ec2` or `azure` run on these simulated clouds, with a kill at every call to them; `ec2-all` are all of EC2.
//! `--seconds N` begins no further kill after N seconds and says how many there were; where there was none it ends with 3.

use std::process::ExitCode;

use clap::Parser as _;
use spokeshave_sim::examples::{Patience, command, each, processors};
use spokeshave_sim::kills::{Story, compare, stories, tell};
use spokeshave_sim::rehearsal::{self, CloudStory, cloud_stories};

/// Most allocations of a run are small and short-lived.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Kills the operator at every write of a story, or at every call to its cloud: the story ends the same.
#[derive(clap::Parser)]
#[command(name = "kills")]
struct Arguments {
    /// The story; all of them unless one is named
    story: Option<String>,
    /// Kill at this write or call only
    #[arg(long, value_name = "WRITE")]
    at: Option<u64>,
    /// Begin no further kill after so many seconds
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
}

/// Status of a program that could kill nobody in its time.
const NOBODY_KILLED: u8 = 3;

/// At which points a story is killed.
struct Points {
    /// Only at this one.
    at: Option<u64>,
    /// When this is over none is begun.
    patience: Patience,
}

/// What has come of the kills so far.
#[derive(Default)]
struct Tally {
    killed: usize,
    /// Ended otherwise, or could not be told at all.
    otherwise: usize,
    /// Whether a story has no such point as it was to be killed at.
    is_beyond: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let only = arguments.story.as_deref();
    let points = Points {
        at: arguments.at,
        patience: Patience::begin(arguments.seconds),
    };
    let mut told = 0;
    let mut tally = Tally::default();
    for story in stories() {
        if only.is_none_or(|name| name == story.name) {
            told += 1;
            every_write(&story, &points, &mut tally);
        }
    }
    for story in cloud_stories() {
        if only.is_none_or(|only| is_named(&story, only)) {
            told += 1;
            every_call(&story, &points, &mut tally);
        }
    }
    if told == 0 {
        let mut names: Vec<&str> = stories().iter().map(|story| story.name).collect();
        names.extend(cloud_stories().map(|story| story.name));
        names.push("ec2-all");
        eprintln!("kills: no such story; there are: {}", names.join(", "));
        return ExitCode::from(2);
    }
    match tally {
        Tally { otherwise: 1.., .. } => ExitCode::FAILURE,
        Tally { is_beyond: true, .. } => ExitCode::from(2),
        Tally { killed: 0, .. } => {
            println!("kills: nobody was killed in this time");
            ExitCode::from(NOBODY_KILLED)
        }
        Tally { .. } => ExitCode::SUCCESS,
    }
}

/// Tells whether a story ends the same whatever write its operator dies at.
fn every_write(story: &Story, points: &Points, tally: &mut Tally) {
    if points.patience.is_over() {
        println!("{}: not begun", story.name);
        return;
    }
    match tell(story, None) {
        Ok(lived) => at_each(story.name, ("writes", lived.writes), points, tally, |write| {
            compare(story, &lived, write)
        }),
        Err(problem) => {
            println!("{problem}");
            tally.otherwise += 1;
        }
    }
}

/// `ec2-all` are all stories of EC2.
fn is_named(story: &CloudStory, name: &str) -> bool {
    story.name == name || (name == "ec2-all" && story.name.starts_with("ec2"))
}

/// Tells whether the story on a cloud ends as it should whatever call to it its operator dies at.
fn every_call(story: &CloudStory, points: &Points, tally: &mut Tally) {
    if points.patience.is_over() {
        println!("{}: not begun", story.name);
        return;
    }
    match rehearsal::lived(story) {
        Ok(calls) => at_each(story.name, ("calls to the cloud", calls), points, tally, |call| {
            rehearsal::every_call(story, call)
        }),
        Err(problem) => {
            println!("{}: {problem}", story.name);
            tally.otherwise += 1;
        }
    }
}

/// Runs a scenario with a kill at each of its points that there is time for, or at one.
fn at_each(
    name: &str,
    (what, count): (&str, u64),
    points: &Points,
    tally: &mut Tally,
    tell: impl Fn(u64) -> Result<(), String> + Sync,
) {
    if count == 0 {
        println!("{name}: no {what} at all");
        tally.otherwise += 1;
        return;
    }
    let (first, last) = points.at.map_or((1, count), |at| (at, at));
    if first == 0 || last > count {
        eprintln!("kills: {name} has {count} {what}, and {last} is none of them");
        tally.is_beyond = true;
        return;
    }
    let told = each(first..=last, processors(), points.patience, tell, |_| {});
    let (program, mut problems) = (command("kills"), 0);
    for (point, ended) in &told {
        if let Err(problem) = ended {
            problems += 1;
            println!("{problem}\n  again: {program} {name} --at {point}");
        }
    }
    println!(
        "{name}: {count} {what}, killed at {}, {problems} ended otherwise",
        told.len()
    );
    tally.killed += told.len();
    tally.otherwise += problems;
}
