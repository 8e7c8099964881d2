//! Consolidation must not get more expensive, slower or less stable than when `crates/sim/figures.json` was committed. `just settle` runs the other
//! scenarios, too, and `just settle --write` writes the figures.

use std::path::Path;

use spokeshave_sim::performance::figures::{Figures, Table};
use spokeshave_sim::performance::settle::{BENCH, Options, live, scenarios};

fn run(seed: u64) -> Figures {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let all = scenarios();
    let bench = all.iter().find(|one| one.name == BENCH).expect("the bench");
    runtime
        .block_on(live(bench, seed, Options::default(), |_| ()))
        .expect("it comes to rest and breaks nothing")
}

#[test]
fn w_60_w_61_the_bench_costs_and_moves_no_more_than_it_did() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("figures.json");
    let text = std::fs::read_to_string(file).expect("crates/sim/figures.json");
    let table: Table = serde_json::from_str(&text).expect("figures");
    let all = scenarios();
    let bench = all.iter().find(|one| one.name == BENCH).expect("the bench");
    let runs: Vec<Figures> = std::thread::scope(|scope| {
        let threads: Vec<_> = bench
            .seeds
            .iter()
            .map(|seed| scope.spawn(move || run(*seed)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a run"))
            .collect()
    });
    let sum = Figures::sum(&runs);
    let worse = sum.worse_than(&table[BENCH]);
    assert!(
        worse.is_empty(),
        "worse than committed; if it has to be, `just settle --write`: {worse:#?}; each run: {runs:#?}"
    );
}
