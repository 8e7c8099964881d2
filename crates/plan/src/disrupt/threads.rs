//! Work on a list, on several threads: answers come back in the order of the list, or not at all.
//!
//! Owns the threads only. Answers are read by their position, so that a thread which panics must never leave a gap: its panic goes on in the caller.

use std::panic::resume_unwind;

/// Splits the items into as many chunks as there are threads, and gives what `work` answers to each, in order. Every thread gets a helper of its own;
/// with one thread the work is done where it is asked for.
///
/// # Panics
/// When `work` panics on any thread, with the same message.
pub(super) fn in_chunks<Item: Sync, Helper: Send, Answer: Send>(
    items: &[Item],
    threads: usize,
    mut helper: impl FnMut() -> Helper,
    work: impl Fn(Helper, &[Item]) -> Answer + Sync,
) -> Vec<Answer> {
    if threads <= 1 {
        return vec![work(helper(), items)];
    }
    let size = items.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let spawn = |chunk| {
            let (helper, work) = (helper(), &work);
            scope.spawn(move || work(helper, chunk))
        };
        let workers: Vec<_> = items.chunks(size).map(spawn).collect();
        let answer = |worker: std::thread::ScopedJoinHandle<'_, Answer>| {
            worker.join().unwrap_or_else(|panic| resume_unwind(panic))
        };
        workers.into_iter().map(answer).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    fn doubled(threads: usize, items: &[u32], bad: Option<u32>) -> Vec<u32> {
        let work = |(), chunk: &[u32]| -> Vec<u32> {
            let double = |item: &u32| {
                assert!(Some(*item) != bad, "item {item} is bad");
                item * 2
            };
            chunk.iter().map(double).collect()
        };
        in_chunks(items, threads, || (), work).concat()
    }

    #[test]
    fn answers_are_in_order_on_any_number_of_threads() {
        let items: Vec<u32> = (0..10).collect();
        for threads in 1..12 {
            let expected: Vec<u32> = items.iter().map(|item| item * 2).collect();
            assert_eq!(doubled(threads, &items, None), expected, "{threads} threads");
        }
        assert_eq!(doubled(4, &[], None), Vec::<u32>::new());
    }

    #[test]
    fn a_panic_of_one_thread_is_a_panic_of_the_whole() {
        let items: Vec<u32> = (0..10).collect();
        for bad in [0, 4, 9] {
            let outcome = catch_unwind(AssertUnwindSafe(|| doubled(3, &items, Some(bad))));
            let panic = outcome.expect_err("answers that are missing must not be made up for by others");
            let text = panic.downcast_ref::<String>().map(String::as_str);
            assert_eq!(text, Some(format!("item {bad} is bad").as_str()));
        }
    }
}
