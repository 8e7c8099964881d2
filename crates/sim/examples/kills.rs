//! Runs every scenario of invariant 37 with a kill at every write: `cargo run --release -p spokeshave-sim --example kills -- [STORY] [--at WRITE]`.
//!
//! The stories whose names begin with `ec2` or `azure` run on these simulated clouds, with a kill at every call to them; `ec2-all` are all of EC2.
//! `--seconds N` begins no further kill after N seconds and says how many there were.

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

/// At which points a story is killed.
struct Points {
    /// Only at this one.
    at: Option<u64>,
    /// When this is over none is begun.
    patience: Patience,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let only = arguments.story.as_deref();
    let points = Points {
        at: arguments.at,
        patience: Patience::begin(arguments.seconds),
    };
    let mut told = 0;
    let mut clean = true;
    for story in stories() {
        if only.is_none_or(|name| name == story.name) {
            told += 1;
            clean &= every_write(&story, &points);
        }
    }
    for story in cloud_stories() {
        if only.is_none_or(|only| is_named(&story, only)) {
            told += 1;
            clean &= every_call(&story, &points);
        }
    }
    if told == 0 {
        let mut names: Vec<&str> = stories().iter().map(|story| story.name).collect();
        names.extend(cloud_stories().map(|story| story.name));
        names.push("ec2-all");
        eprintln!("kills: no such story; there are: {}", names.join(", "));
        return ExitCode::from(2);
    }
    if clean {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Whether a story ends the same whatever write its operator dies at.
fn every_write(story: &Story, points: &Points) -> bool {
    if points.patience.is_over() {
        println!("{}: not begun", story.name);
        return true;
    }
    let lived = match tell(story, None) {
        Ok(lived) => lived,
        Err(problem) => {
            println!("{problem}");
            return false;
        }
    };
    let writes = lived.writes;
    at_each(story.name, ("writes", writes), points, |write| {
        compare(story, &lived, write)
    })
}

/// `ec2-all` are all stories of EC2.
fn is_named(story: &CloudStory, name: &str) -> bool {
    story.name == name || (name == "ec2-all" && story.name.starts_with("ec2"))
}

/// Whether the story on a cloud ends as it should whatever call to it its operator dies at.
fn every_call(story: &CloudStory, points: &Points) -> bool {
    if points.patience.is_over() {
        println!("{}: not begun", story.name);
        return true;
    }
    match rehearsal::lived(story) {
        Ok(calls) => at_each(story.name, ("calls to the cloud", calls), points, |call| {
            rehearsal::every_call(story, call)
        }),
        Err(problem) => {
            println!("{}: {problem}", story.name);
            false
        }
    }
}

/// Runs a scenario with a kill at each of its points that there is time for, or at one.
fn at_each(
    name: &str,
    (what, count): (&str, u64),
    points: &Points,
    tell: impl Fn(u64) -> Result<(), String> + Sync,
) -> bool {
    let (first, last) = points.at.map_or((1, count), |at| (at, at));
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
    problems == 0
}
