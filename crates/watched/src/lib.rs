//! A value whose changes many tasks await; waiters are woken in FIFO order.
//!
//! It has the interface of `tokio::sync::watch` without its randomness: tokio spreads waiters over eight lists at random, so the order
//! in which tasks go on differs from run to run. Simulations on virtual time are to be the same byte for byte (invariant 35). It knows nothing of
//! what the value means.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use tokio::sync::Notify;

#[derive(Debug)]
struct Shared<T> {
    state: RwLock<State<T>>,
    changed: Notify,
    senders: AtomicUsize,
}

#[derive(Debug)]
struct State<T> {
    value: T,
    version: u64,
}

impl<T> Shared<T> {
    fn read(&self) -> RwLockReadGuard<'_, State<T>> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A borrow of the value. It blocks writers: drop it before awaiting anything.
#[derive(Debug)]
pub struct Ref<'a, T>(RwLockReadGuard<'a, State<T>>);

impl<T> Deref for Ref<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

/// All senders are gone: the value does not change any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nobody is left who could change the value")
    }
}

impl std::error::Error for Closed {}

/// Who changes the value.
#[derive(Debug)]
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Sender<T> {
    /// A value without receivers.
    #[must_use]
    pub fn new(value: T) -> Self {
        let shared = Shared {
            state: RwLock::new(State { value, version: 0 }),
            changed: Notify::new(),
            senders: AtomicUsize::new(1),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// One who sees every change from now on.
    #[must_use]
    pub fn subscribe(&self) -> Receiver<T> {
        let seen = self.shared.read().version;
        Receiver {
            shared: self.shared.clone(),
            seen,
        }
    }

    /// The value now.
    #[must_use]
    pub fn borrow(&self) -> Ref<'_, T> {
        Ref(self.shared.read())
    }

    /// Sets the value, wakes all waiters, and returns the previous one.
    pub fn send_replace(&self, value: T) -> T {
        let mut before = value;
        self.send_modify(|value| std::mem::swap(value, &mut before));
        before
    }

    /// Changes the value and wakes all waiters.
    pub fn send_modify(&self, change: impl FnOnce(&mut T)) {
        self.send_if_modified(|value| {
            change(value);
            true
        });
    }

    /// Changes the value, and wakes all waiters if `change` returns true. Returns its result.
    pub fn send_if_modified(&self, change: impl FnOnce(&mut T) -> bool) -> bool {
        {
            let mut state = self.shared.state.write().unwrap_or_else(PoisonError::into_inner);
            if !change(&mut state.value) {
                return false;
            }
            state.version += 1;
        }
        self.shared.changed.notify_waiters();
        true
    }
}

impl<T: Default> Default for Sender<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.shared.senders.fetch_add(1, Ordering::Relaxed);
        Self {
            shared: self.shared.clone(),
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.shared.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.changed.notify_waiters();
        }
    }
}

/// Who awaits changes; each remembers what it has seen.
#[derive(Debug)]
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    seen: u64,
}

impl<T> Receiver<T> {
    /// The value now; it does not count as seen.
    #[must_use]
    pub fn borrow(&self) -> Ref<'_, T> {
        Ref(self.shared.read())
    }

    /// The value now, seen.
    pub fn borrow_and_update(&mut self) -> Ref<'_, T> {
        let state = self.shared.read();
        self.seen = state.version;
        Ref(state)
    }

    /// Waits until the value has changed since it was last seen; it is seen then. Nothing is lost when the wait is broken off.
    ///
    /// # Errors
    /// All senders are gone, and what they did last has been seen.
    pub async fn changed(&mut self) -> Result<(), Closed> {
        loop {
            // Registered before the check, so that a change between check and wait wakes it.
            let notified = self.shared.changed.notified();
            let version = self.shared.read().version;
            if version != self.seen {
                self.seen = version;
                return Ok(());
            }
            if self.shared.senders.load(Ordering::Acquire) == 0 {
                return Err(Closed);
            }
            notified.await;
        }
    }

    /// Waits until the value is as wanted, which it may be already.
    ///
    /// # Errors
    /// All senders are gone, and the value is not as wanted.
    pub async fn wait_for(&mut self, mut wanted: impl FnMut(&T) -> bool) -> Result<(), Closed> {
        loop {
            if wanted(&self.borrow_and_update()) {
                return Ok(());
            }
            self.changed().await?;
        }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            seen: self.seen,
        }
    }
}

/// A value, who changes it, and the first of those who watch it.
#[must_use]
pub fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let sender = Sender::new(value);
    let receiver = sender.subscribe();
    (sender, receiver)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn block_on<F: Future>(future: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
            .block_on(future)
    }

    #[test]
    fn invariant_35_who_waits_first_is_woken_first() {
        let order = block_on(async {
            let (sender, receiver) = channel(0);
            let order: Arc<Mutex<Vec<usize>>> = Arc::default();
            let tasks: Vec<_> = (0..100)
                .map(|number| {
                    let (mut receiver, order) = (receiver.clone(), order.clone());
                    tokio::spawn(async move {
                        receiver.changed().await.unwrap();
                        order.lock().unwrap().push(number);
                    })
                })
                .collect();
            // The runtime gives its main task a turn after some dozens of others.
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            sender.send_replace(1);
            for task in tasks {
                task.await.unwrap();
            }
            Arc::into_inner(order).unwrap().into_inner().unwrap()
        });
        assert_eq!(order, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn a_change_is_seen_once_by_everybody_and_the_end_after_it() {
        block_on(async {
            let (sender, mut early) = channel(1);
            assert_eq!(sender.send_replace(2), 1);
            let mut late = sender.subscribe();
            assert!(!sender.send_if_modified(|_| false));
            assert_eq!(early.changed().await, Ok(()));
            assert_eq!((*early.borrow(), *late.borrow()), (2, 2));
            drop(sender);
            assert_eq!(early.changed().await, Err(Closed));
            assert_eq!(late.changed().await, Err(Closed));
        });
    }

    #[test]
    fn what_is_wanted_may_be_there_already_or_come_or_never_come() {
        block_on(async {
            let (sender, mut receiver) = channel(3);
            receiver.wait_for(|value| *value == 3).await.unwrap();
            let mut other = receiver.clone();
            let waiting = tokio::spawn(async move { other.wait_for(|value| *value == 5).await });
            for value in [4, 5, 6] {
                sender.send_replace(value);
                tokio::task::yield_now().await;
            }
            assert_eq!(waiting.await.unwrap(), Ok(()));
            drop(sender);
            assert_eq!(receiver.wait_for(|value| *value == 9).await, Err(Closed));
        });
    }

    #[test]
    fn nothing_is_lost_between_threads() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .build()
            .unwrap();
        runtime.block_on(async {
            let (sender, mut receiver) = channel(0_u32);
            let reading = tokio::spawn(async move {
                while receiver.changed().await.is_ok() {
                    if *receiver.borrow() == 10_000 {
                        return true;
                    }
                }
                *receiver.borrow() == 10_000
            });
            for _ in 0..10_000 {
                sender.send_modify(|value| *value += 1);
            }
            assert!(reading.await.unwrap());
        });
    }
}
