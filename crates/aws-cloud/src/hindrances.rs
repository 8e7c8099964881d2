//! Calls that AWS denies and that no condition tells of: prices, tags, statuses, what is cleaned up. Each is told on every class, with what does not happen
//! because of it.
//!
//! Owns the words. What was told when is kept in `notices`. Failed calls that keep a class from being ready are told by its reconciliation.

use spokeshave_provider_aws::errors::{ApiError, steady};

use crate::notices;
use crate::provider::Inner;

impl Inner {
    /// Tells of a call that is denied; of other errors it does not: they pass, or are told elsewhere.
    pub(crate) fn tell_denied(&self, call: &'static str, effect: &str, error: &ApiError) {
        if error.is_unauthorized() {
            self.tell_hindrance(call, effect, error);
        }
    }

    /// Tells of a call that will not succeed by itself, with what does not happen because of it.
    pub(crate) fn tell_hindrance(&self, call: &'static str, effect: &str, error: &ApiError) {
        let text = format!("{effect}: {}", steady(&error.told(call)));
        let now = self.clock.now();
        let classes = self.classes.all().unwrap_or_default();
        self.hindrances
            .forget(|name| classes.iter().any(|class| class.name() == name));
        for class in &classes {
            if self.hindrances.is_news(class.name(), call, &text, now) {
                let notice = notices::of_class(class, true, "CallFailed", text.clone());
                self.notices.tell(notice);
            }
        }
    }
}
