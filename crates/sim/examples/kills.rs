//! Runs every scenario of invariant 37 with a kill at every write: `cargo run --release -p spokeshave-sim --example kills -- [STORY] [--at WRITE]`.
//!
//! The stories whose names begin with `ec2` or `azure` run on these simulated clouds, with a kill at every call to them; `ec2-all` are all of EC2.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use spokeshave_sim::kills::{Story, compare, stories, tell};
use spokeshave_sim::rehearsal::{self, CloudStory, cloud_stories};

/// Most allocations of a run are small and short-lived.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let mut rest = std::env::args().skip(1);
    let (mut only, mut at) = (None, None);
    while let Some(argument) = rest.next() {
        if argument == "--at" {
            at = rest.next().and_then(|text| text.parse::<u64>().ok());
            if at.is_none() {
                eprintln!("kills: --at needs the number of a write\nusage: kills [STORY] [--at WRITE]");
                return ExitCode::from(2);
            }
        } else {
            only = Some(argument);
        }
    }
    let mut told = 0;
    let mut clean = true;
    for story in stories() {
        if only.as_deref().is_none_or(|name| name == story.name) {
            told += 1;
            clean &= every_write(&story, at);
        }
    }
    for story in cloud_stories() {
        if only.as_deref().is_none_or(|only| is_named(&story, only)) {
            told += 1;
            clean &= every_call(&story, at);
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
fn every_write(story: &Story, at: Option<u64>) -> bool {
    let lived = match tell(story, None) {
        Ok(lived) => lived,
        Err(problem) => {
            println!("{problem}");
            return false;
        }
    };
    let writes = lived.writes;
    at_each(story.name, ("writes", writes), at, |write| {
        compare(story, &lived, write)
    })
}

/// `ec2-all` are all stories of EC2.
fn is_named(story: &CloudStory, name: &str) -> bool {
    story.name == name || (name == "ec2-all" && story.name.starts_with("ec2"))
}

/// Whether the story on a cloud ends as it should whatever call to it its operator dies at.
fn every_call(story: &CloudStory, at: Option<u64>) -> bool {
    match rehearsal::lived(story) {
        Ok(calls) => at_each(story.name, ("calls to the cloud", calls), at, |call| {
            rehearsal::every_call(story, call)
        }),
        Err(problem) => {
            println!("{}: {problem}", story.name);
            false
        }
    }
}

/// Runs a scenario with a kill at each of the given points, or at one.
fn at_each(
    name: &str,
    (what, count): (&str, u64),
    at: Option<u64>,
    tell: impl Fn(u64) -> Result<(), String> + Sync,
) -> bool {
    let program = spokeshave_sim::program("kills");
    let (first, last) = at.map_or((1, count), |at| (at, at));
    let next = AtomicU64::new(first);
    let problems: Mutex<Vec<String>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let point = next.fetch_add(1, Ordering::Relaxed);
                    if point > last {
                        break;
                    }
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
        last - first + 1,
        problems.len()
    );
    problems.is_empty()
}
