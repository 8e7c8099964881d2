//! Looks for interruptions that are answered by more nodes than they need: `cargo run --release -p spokeshave-sim --example replacements -- [FIRST] [COUNT]`.

use std::process::ExitCode;

use spokeshave_sim::rehearsal::{Replaced, replaced};

fn main() -> ExitCode {
    let mut numbers = std::env::args()
        .skip(1)
        .filter_map(|text| text.parse::<u64>().ok());
    let (first, count) = (numbers.next().unwrap_or(1), numbers.next().unwrap_or(100));
    let mut others = 0;
    for seed in first..first + count {
        match replaced(seed) {
            Ok(Replaced { interrupted, made }) if interrupted == made => {}
            other => {
                others += 1;
                println!("seed {seed}: {other:?}");
            }
        }
    }
    println!("{count} seeds, {others} with more or fewer nodes than were taken back");
    if others == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
