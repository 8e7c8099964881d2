//! What a provider knows does not hang on its process (G-007): the checks over a restart.

use std::fmt::Debug;
use std::time::Duration;

use futures::future::BoxFuture;

use super::wire::{LIMIT, Wire, shown};
use super::{Shortcomings, failure};
use crate::link::{self, Shaken, within};
use crate::wire::{Instance, InstanceRef, LaunchRequest};

/// Time within which the connection to the process of before must have ended.
const END_LIMIT: Duration = Duration::from_secs(30);

/// How a provider is stopped and started again.
pub trait Restart: Debug + Send + Sync {
    /// Completes once the provider is started again, or at least its end has begun. The error says what went wrong.
    fn restart(&self) -> BoxFuture<'_, Result<(), String>>;
}

impl Wire<'_> {
    /// Restarts the provider between a launch and everything else that is asked of the instance.
    pub(super) async fn restarts(
        &mut self,
        request: &LaunchRequest,
        launched: &Instance,
        failures: &mut Shortcomings,
    ) {
        let Some(restart) = &self.options.restart else {
            return;
        };
        if let Err(problem) = restart.restart().await {
            failures.push(failure("provider_restarts", problem));
            return;
        }
        if within(self.clock, END_LIMIT, &mut self.shaken.ended.0)
            .await
            .is_none()
        {
            failures.push(failure(
                "provider_restarts",
                format!(
                    "the restart command has ended, and the connection of before still stands {} s later: nothing was restarted",
                    END_LIMIT.as_secs()
                ),
            ));
            return;
        }
        if let Err(problem) = self.renew().await {
            failures.push(failure(
                "provider_restarts",
                format!("not back {} s after the restart: {problem}", LIMIT.as_secs()),
            ));
            return;
        }
        let request = LaunchRequest {
            leader_term: self.term,
            ..request.clone()
        };
        self.remembers(&request, launched, failures).await;
    }

    /// Goes on with another connection, as soon as there is one, and in the term of who leads by then: nothing could be ended in an older one.
    pub(super) async fn renew(&mut self) -> Result<(), String> {
        self.shaken = self.connect_again().await?;
        self.term = self.term.max(self.shaken.seen_term);
        Ok(())
    }

    async fn connect_again(&self) -> Result<Shaken, String> {
        let started = self.clock.now();
        loop {
            match link::connect(&*self.options.connector, self.clock, &self.hello).await {
                Ok(shaken) => return Ok(shaken),
                Err(problem) if self.clock.since(started) > LIMIT => return Err(problem.to_string()),
                Err(_) => self.clock.sleep(Duration::from_secs(1)).await,
            }
        }
    }

    async fn remembers(&self, request: &LaunchRequest, launched: &Instance, failures: &mut Shortcomings) {
        let asked = InstanceRef {
            provider_id: launched.provider_id.clone(),
        };
        let got = within(self.clock, LIMIT, self.client().get_instance(asked)).await;
        if !matches!(&got, Some(Ok(_))) {
            failures.push(failure(
                "instances_outlive_restarts",
                format!(
                    "GetInstance of {} after a restart: {}",
                    launched.provider_id,
                    shown(&got)
                ),
            ));
        }
        if let Some(Ok((rows, _))) = within(self.clock, LIMIT, self.list()).await
            && !rows.iter().any(|row| row.provider_id == launched.provider_id)
        {
            failures.push(failure(
                "instances_outlive_restarts",
                format!("{} is not listed after a restart", launched.provider_id),
            ));
        }
        if let Some(again) = self.launch(request, failures).await
            && again.provider_id != launched.provider_id
        {
            failures.push(failure(
                "launches_are_idempotent_over_restarts",
                format!(
                    "one nodeclaim_uid has the instance {} before a restart and {} after it",
                    launched.provider_id, again.provider_id
                ),
            ));
        }
    }
}
