//! The status of instances, asked for every minute (A9.4): broken ones end as if the queue had said so. It needs no queue.
//!
//! Owns the period. What counts as broken is decided in `provider-aws`, what is done about it by core.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use spokeshave_model::interruption::InterruptionKind;
use spokeshave_ports::{Interruption, Interruptions};
use spokeshave_provider_aws::health::{self, Category};

use crate::messages::Owner;
use crate::provider::Inner;

/// Statuses are asked for this often.
const PERIOD: Duration = Duration::from_secs(60);

fn kind_of(category: Category) -> InterruptionKind {
    match category {
        Category::Instance => InterruptionKind::InstanceStatus,
        Category::System => InterruptionKind::SystemStatus,
        Category::Event => InterruptionKind::EventStatus,
    }
}

impl Inner {
    /// Messages about broken instances, for as long as somebody listens.
    pub(crate) fn unhealthy(&self) -> Interruptions<'_> {
        let looks = stream::unfold((), move |()| async move {
            self.clock.sleep(PERIOD).await;
            Some((self.look_for_broken().await, ()))
        });
        looks.flat_map(stream::iter).boxed()
    }

    async fn look_for_broken(&self) -> Vec<Interruption> {
        let mut found = Vec::new();
        for category in Category::ALL {
            let statuses = match self.aws.ec2.instance_statuses(&[category.filter()]).await {
                Ok(statuses) => statuses,
                Err(error) if error.is_unauthorized() => {
                    tracing::error!(%error, "ec2:DescribeInstanceStatus is not allowed: broken instances are not looked for until the operator starts again");
                    let effect = "broken instances are not looked for until the operator starts again";
                    loop {
                        self.tell_denied("ec2:DescribeInstanceStatus", effect, &error);
                        self.clock.sleep(PERIOD).await;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "ec2:DescribeInstanceStatus failed; it is tried again in a minute");
                    continue;
                }
            };
            let now = self.clock.now();
            let mut ours = BTreeSet::new();
            for id in health::broken(category, &statuses, now) {
                let Owner::Ours(provider_id) = self.owner_of(&id).await else {
                    continue;
                };
                ours.insert(id.clone());
                let kind = kind_of(category);
                found.push(Interruption {
                    id: format!("{}/{id}", kind.label()),
                    provider_id,
                    kind: Ok(kind),
                    sent_at: None,
                    // Nothing on a broken machine is worth waiting for (D-281).
                    ends_at: (category != Category::Event).then_some(now),
                });
            }
            self.aws.meter.unhealthy(category.label(), ours);
        }
        found
    }
}
