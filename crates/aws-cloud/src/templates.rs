//! Launch templates: made when a launch needs one that is not there, removed when none has needed it for a while (A5.2).
//!
//! Owns what is known of templates. A name is a function of all that a template says, so that an equal launch finds it again, also after a restart.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use spokeshave_provider_aws::errors::ApiError;
use spokeshave_provider_aws::requests::LaunchTemplateRequest;
use spokeshave_provider_aws::requests::look_up::{Filter, LaunchTemplatesRequest};

use crate::ports::Aws;

/// A template that no launch has needed for this long is removed.
const UNUSED_FOR: SignedDuration = SignedDuration::from_mins(1);

#[derive(Clone, Debug)]
struct Known {
    id: String,
    used: Timestamp,
}

/// The launch templates of this cluster that are known.
#[derive(Debug, Default)]
pub(crate) struct Templates {
    known: Mutex<BTreeMap<String, Known>>,
}

impl Templates {
    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over the templates of an earlier run, so that they are removed when nobody needs them.
    pub(crate) async fn hydrate(
        &self,
        aws: &Aws,
        cluster_name: &str,
        now: Timestamp,
    ) -> Result<(), ApiError> {
        let request = LaunchTemplatesRequest {
            filters: vec![Filter::tag(
                spokeshave_provider_aws::tags::CLUSTER_NAME,
                cluster_name,
            )],
            ..LaunchTemplatesRequest::default()
        };
        let found = aws.ec2.launch_templates(&request).await?;
        let own = |template: &spokeshave_provider_aws::replies::LaunchTemplate| {
            let cluster = template.tags.get(spokeshave_provider_aws::tags::CLUSTER_NAME);
            cluster.is_some_and(|cluster| cluster == cluster_name)
                && template
                    .name
                    .starts_with(spokeshave_provider_aws::launch::TEMPLATE_NAME_PREFIX)
        };
        let mut known = self.known();
        for template in found.into_iter().filter(own) {
            known.entry(template.name).or_insert(Known {
                id: template.id,
                used: now,
            });
        }
        Ok(())
    }

    /// Sees to it that a template is there.
    pub(crate) async fn ensure(
        &self,
        aws: &Aws,
        request: &LaunchTemplateRequest,
        now: Timestamp,
    ) -> Result<(), ApiError> {
        let name = &request.launch_template_name;
        if let Some(known) = self.known().get_mut(name) {
            known.used = now;
            return Ok(());
        }
        let template = match self.find(aws, name).await? {
            Some(id) => id,
            None => match aws.ec2.create_launch_template(request).await {
                Ok(made) => made.id,
                // Somebody was faster: another launch, or an attempt whose reply was lost.
                Err(error) if error.code == "InvalidLaunchTemplateName.AlreadyExistsException" => {
                    self.find(aws, name).await?.unwrap_or_default()
                }
                Err(error) => return Err(error),
            },
        };
        self.known().insert(
            name.clone(),
            Known {
                id: template,
                used: now,
            },
        );
        Ok(())
    }

    async fn find(&self, aws: &Aws, name: &str) -> Result<Option<String>, ApiError> {
        let request = LaunchTemplatesRequest {
            launch_template_names: vec![name.to_owned()],
            ..LaunchTemplatesRequest::default()
        };
        match aws.ec2.launch_templates(&request).await {
            Ok(found) => Ok(found.into_iter().find(|one| one.name == *name).map(|one| one.id)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Forgets templates that EC2 says are gone.
    pub(crate) fn forget<'a>(&self, names: impl IntoIterator<Item = &'a str>) {
        let mut known = self.known();
        for name in names {
            known.remove(name);
        }
    }

    /// Removes what no launch has needed for a while. What cannot be removed now is tried again.
    pub(crate) async fn sweep(&self, aws: &Aws, now: Timestamp) {
        let unused: Vec<(String, String)> = self
            .known()
            .iter()
            .filter(|(_, known)| now.duration_since(known.used) >= UNUSED_FOR)
            .map(|(name, known)| (name.clone(), known.id.clone()))
            .collect();
        for (name, id) in unused {
            self.known().remove(&name);
            match aws.ec2.delete_launch_template(&id).await {
                Ok(()) => tracing::debug!(
                    launch_template = name,
                    "removed a launch template that nobody uses"
                ),
                Err(error) if error.is_not_found() => {}
                Err(error) => {
                    tracing::warn!(launch_template = name, %error, "cannot remove a launch template; it is tried again");
                    self.known().entry(name).or_insert(Known { id, used: now });
                }
            }
        }
    }
}
