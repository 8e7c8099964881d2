//! Messages of the kwok cloud about its instances: an annotation on a KWOKInstance, which whoever plays the cloud writes and the operator
//! removes.

use futures::StreamExt as _;
use jiff::Timestamp;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::runtime::watcher::{self, Event};
use serde_json::json;
use spokeshave_api::KWOKInstance;
use spokeshave_model::interruption::InterruptionKind;
use spokeshave_ports::{CloudError, Interruption, Interruptions};

use crate::errors::request_error;
use crate::{KwokProvider, keys, record};

/// Pause after a watch that broke off.
const RETRY: std::time::Duration = std::time::Duration::from_secs(1);

impl KwokProvider {
    /// Every message that nobody has taken yet.
    pub(crate) fn messages(&self) -> Interruptions<'_> {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &record::record_kind());
        watcher::watcher(api, watcher::Config::default())
            .filter_map(move |event| async move {
                match event {
                    Ok(Event::Apply(object) | Event::InitApply(object)) => {
                        self.read(&record::readable(object)?)
                    }
                    Ok(_) => None,
                    Err(error) => {
                        self.watch_failures.count(KWOKInstance::KIND);
                        tracing::debug!(%error, "watching messages of the kwok cloud");
                        self.clock.sleep(RETRY).await;
                        None
                    }
                }
            })
            .boxed()
    }

    fn read(&self, instance: &KWOKInstance) -> Option<Interruption> {
        let text = record::message(instance)?;
        let kind = InterruptionKind::from_label(text).ok_or_else(|| text.to_owned());
        if kind == Ok(InterruptionKind::SpotInterrupted) {
            self.withhold(instance);
        }
        let known = record::ends_at(instance);
        // The notice counts from now when the cloud has not written down yet what it counts from.
        let ends_at = known.or_else(|| {
            let notice = self.options.interruption_notice;
            let soon = self.clock.now().saturating_add(notice).unwrap_or(Timestamp::MAX);
            (kind == Ok(InterruptionKind::SpotInterrupted)).then_some(soon)
        });
        Some(Interruption {
            id: instance.name().to_owned(),
            provider_id: record::provider_id(instance),
            kind,
            sent_at: None,
            ends_at,
        })
    }

    pub(crate) async fn take_message(&self, message: &Interruption) -> Result<(), CloudError> {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {keys::MESSAGE: null}}}));
        match self
            .instances()
            .patch(&message.id, &PatchParams::default(), &patch)
            .await
        {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(request_error("patch KWOKInstance", &error)),
        }
    }
}
