//! How much work a thousand spot interruptions at once are: `cargo run --release -p spokeshave-sim --example interruptions -- [COUNT]`.
//!
//! The shipped controllers and AWS provider with the simulated EC2, API server and machines in one thread. Time in the cluster passes only when
//! nothing else happens, so wall-clock time measures the work, including that of API server and simulation.

use std::process::ExitCode;
use std::time::Instant;

use spokeshave_sim::rehearsal::Interruptible;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let count = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let count = count.unwrap_or(1_000);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    match runtime.block_on(measure(count)) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("interruptions: {problem}");
            ExitCode::FAILURE
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a benchmark measures the time that passes"
)]
fn now() -> Instant {
    Instant::now()
}

async fn measure(count: usize) -> Result<String, String> {
    let mut cluster = Interruptible::new(count).await?;
    let start = now();
    let took = cluster.interrupt_all().await?;
    let work = start.elapsed();
    cluster.end().await;
    Ok(format!(
        "{count} interruption messages at once: every NodeClaim deleted after {:.1} s by the cluster's clock, {:.2} s of work on one core",
        took.as_secs_f64(),
        work.as_secs_f64()
    ))
}
