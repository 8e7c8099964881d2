//! Runs every scenario of invariant 37 with a kill at every write: `cargo run --release -p spokeshave-sim --example kills -- [STORY] [--at WRITE]`.
//!
//! The stories whose names begin with `ec2` or `azure` run on these simulated clouds, with a kill at every call to them; `ec2-all` are all of EC2.
//! `--seconds N` begins no further kill after N seconds and says how many there were.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser as _;
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
    /// None is begun after that.
    until: Option<Instant>,
}

impl Points {
    fn is_time_up(&self) -> bool {
        self.until.is_some_and(|until| now() >= until)
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "whoever waits for the kills has so many seconds of the wall clock"
)]
fn now() -> Instant {
    Instant::now()
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let only = arguments.story.as_deref();
    let seconds = arguments.seconds.map(Duration::from_secs);
    let points = Points {
        at: arguments.at,
        until: seconds.and_then(|seconds| now().checked_add(seconds)),
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
    if points.is_time_up() {
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
    if points.is_time_up() {
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
    let program = spokeshave_sim::program("kills");
    let (first, last) = points.at.map_or((1, count), |at| (at, at));
    let (next, killed) = (AtomicU64::new(first), AtomicU64::new(0));
    let problems: Mutex<Vec<String>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let point = next.fetch_add(1, Ordering::Relaxed);
                    if point > last || points.is_time_up() {
                        break;
                    }
                    killed.fetch_add(1, Ordering::Relaxed);
                    if let Err(problem) = tell(point) {
                        let mut problems = problems.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                        problems.push(format!("{problem}\n  again: {program} {name} --at {point}"));
                    }
                }
            });
        }
    });
    let problems = problems
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    for problem in &problems {
        println!("{problem}");
    }
    println!(
        "{name}: {count} {what}, killed at {}, {} ended otherwise",
        killed.into_inner(),
        problems.len()
    );
    problems.is_empty()
}
