//! How long a story lives: a runtime of its own, whose time is paused, and that ends with it.
//!
//! Owns the runtime, and what is wrong when an operator is still there afterwards.

use std::sync::Weak;

use spokeshave_ports::CloudProvider;

/// The operators of a laboratory, known by their providers.
#[derive(Clone, Debug, Default)]
pub struct Operators(Vec<Weak<dyn CloudProvider>>);

impl Operators {
    pub(super) fn add(&mut self, provider: Weak<dyn CloudProvider>) {
        self.0.push(provider);
    }

    /// What is wrong when some are still in memory after their runtime has ended: a part of them holds itself, and is never freed.
    pub(crate) fn outlived(&self) -> Option<String> {
        let alive = self.0.iter().filter(|one| one.strong_count() > 0).count();
        (alive > 0).then(|| {
            format!(
                "{alive} of {} operators are still in memory after their end",
                self.0.len()
            )
        })
    }
}

/// Lives a story in a runtime of its own; what it leaves in its argument are the operators that must have ended with it.
///
/// # Errors
/// There is no runtime.
pub(crate) fn live<T>(story: impl AsyncFnOnce(&mut Operators) -> T) -> Result<(T, Operators), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .map_err(|error| format!("no runtime: {error}"))?;
    let mut operators = Operators::default();
    let lived = runtime.block_on(story(&mut operators));
    Ok((lived, operators))
}

/// The same for a story that may fail.
///
/// # Errors
/// Its own; or an operator has outlived it.
pub(crate) fn tell<T>(story: impl AsyncFnOnce(&mut Operators) -> Result<T, String>) -> Result<T, String> {
    let (told, operators) = live(story)?;
    let told = told?;
    operators.outlived().map_or(Ok(told), Err)
}
