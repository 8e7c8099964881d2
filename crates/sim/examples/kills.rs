//! Tells every story of invariant 37 with a kill at every write: `cargo run --release -p spokeshave-sim --example kills -- [STORY] [--at WRITE]`.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use spokeshave_sim::kills::{Story, compare, stories, tell};

/// Most of a telling is small objects that come and go.
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
    if told == 0 {
        let names: Vec<&str> = stories().iter().map(|story| story.name).collect();
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
    let (first, last) = at.map_or((1, lived.writes), |at| (at, at));
    let next = AtomicU64::new(first);
    let problems: Mutex<Vec<String>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let write = next.fetch_add(1, Ordering::Relaxed);
                    if write > last {
                        break;
                    }
                    if let Err(problem) = compare(story, &lived, write) {
                        let mut problems = problems.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                        problems.push(format!(
                            "{problem}\n  again: just kills {} --at {write}",
                            story.name
                        ));
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
        "{}: {} writes, killed at {}, {} ended otherwise",
        story.name,
        lived.writes,
        last - first + 1,
        problems.len()
    );
    problems.is_empty()
}
