//! The processor time of a thread: what one run costs, whatever else the machine does meanwhile.
//!
//! Owns the question to the kernel. What is measured by it is in no figure and no digest.

/// How long this thread has been on a processor, in milliseconds; none where the kernel is not asked.
#[cfg(target_os = "linux")]
pub(crate) fn of_this_thread_ms() -> Option<u64> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    Some(seconds.ok()? * 1_000 + nanos.ok()? / 1_000_000)
}

/// The same on a system that has no such question.
#[cfg(not(target_os = "linux"))]
pub(crate) fn of_this_thread_ms() -> Option<u64> {
    None
}
