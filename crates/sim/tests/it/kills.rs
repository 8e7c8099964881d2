//! Invariant 37: each scenario without a kill, and with one at a few of its writes, which vary with each commit in CI. `just kills` covers every write.

use spokeshave_sim::kills::{compare, stories, tell};

use crate::disruption_deaths::{STRIDE, moved_by};

/// So many writes of each story are tried here, evenly spread.
const TRIES: u64 = 3;

fn at_some_writes(name: &str) {
    let all = stories();
    let story = all.iter().find(|story| story.name == name).unwrap();
    let lived = tell(story, None).unwrap();
    assert!(
        lived.writes >= story.least_writes,
        "{name} has only {} writes",
        lived.writes
    );
    let moved = moved_by() % STRIDE;
    for part in 1..=TRIES {
        let write = (part * STRIDE + moved) * lived.writes / (STRIDE * (TRIES + 1));
        compare(story, &lived, write.max(1)).unwrap();
    }
}

/// A kill that comes too late proves nothing.
#[test]
fn invariant_37_a_story_that_its_operator_survives_is_an_error() {
    let [story, ..] = stories();
    let lived = tell(&story, None).unwrap();
    let problem = compare(&story, &lived, lived.writes + 1_000).unwrap_err();
    assert!(problem.contains("nobody died"), "{problem}");
}

macro_rules! told {
    ($($test:ident: $story:literal),* $(,)?) => {
        $(
            #[test]
            fn $test() {
                at_some_writes($story);
            }
        )*

        #[test]
        fn every_story_is_told() {
            let names: Vec<&str> = stories().iter().map(|story| story.name).collect();
            assert_eq!(names, [$($story),*]);
        }
    };
}

told! {
    invariant_37_launch_and_registration: "launch",
    invariant_37_emptiness: "emptiness",
    invariant_37_drain_with_a_budget: "drain_with_a_budget",
    invariant_37_volumes: "volumes",
    invariant_37_deadline: "deadline",
    invariant_37_expiry: "expiry",
    invariant_37_garbage_collection: "garbage_collection",
    invariant_37_deletion_of_a_nodepool: "deletion_of_a_nodepool",
}
