//! Launch templates: made when a launch needs one that is not there, removed when none has needed it for a while (A5.2).
//!
//! Owns the calls, and that a template is made by one launch while others wait for it. Which exist and which expire is kept in `provider-aws`. A name is a
//! function of all that a template says, so that an equal launch finds it again, also after a restart.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use spokeshave_provider_aws::errors::ApiError;
use spokeshave_provider_aws::requests::LaunchTemplateRequest;
use spokeshave_provider_aws::requests::look_up::LaunchTemplatesRequest;
use spokeshave_provider_aws::templates;

use crate::ports::Aws;

#[derive(Debug, Default)]
struct State {
    known: templates::Templates,
    /// Templates that a launch is seeing to.
    making: BTreeMap<String, Arc<tokio::sync::Mutex<()>>>,
}

/// The launch templates of this cluster that are known.
#[derive(Debug, Default)]
pub(crate) struct Templates {
    state: Mutex<State>,
}

impl Templates {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over the templates of an earlier run, so that they are removed when nobody needs them.
    pub(crate) async fn hydrate(
        &self,
        aws: &Aws,
        cluster_name: &str,
        now: Timestamp,
    ) -> Result<(), ApiError> {
        let found = aws
            .ec2
            .launch_templates(&templates::of_cluster(cluster_name))
            .await?;
        let known = &mut self.state().known;
        for template in found {
            if templates::is_of_cluster(&template, cluster_name) && !known.find(&template.name, now) {
                known.exists(&template.name, &template.id, now);
            }
        }
        Ok(())
    }

    /// Sees to it that a template is there. Of launches that need the same one at once, one asks EC2.
    ///
    /// # Errors
    /// The call that failed, as policies name it, and how.
    pub(crate) async fn ensure(
        &self,
        aws: &Aws,
        request: &LaunchTemplateRequest,
        now: Timestamp,
    ) -> Result<(), (&'static str, ApiError)> {
        let name = &request.launch_template_name;
        let turn = {
            let mut state = self.state();
            if state.known.find(name, now) {
                return Ok(());
            }
            state.making.retain(|_, turn| Arc::strong_count(turn) > 1);
            state.making.entry(name.clone()).or_default().clone()
        };
        let _turn = turn.lock().await;
        if self.state().known.find(name, now) {
            return Ok(());
        }
        let found = async || {
            let found = self.find(aws, name).await;
            found.map_err(|error| ("ec2:DescribeLaunchTemplates", error))
        };
        let id = match found().await? {
            Some(id) => id,
            None => match aws.ec2.create_launch_template(request).await {
                Ok(made) => made.id,
                // Somebody was faster: another replica, or an attempt whose reply was lost.
                Err(error) if error.code == "InvalidLaunchTemplateName.AlreadyExistsException" => {
                    let Some(id) = found().await? else {
                        // EC2 does not list it yet: it is there for this launch, and the next one looks for it again.
                        return Ok(());
                    };
                    id
                }
                Err(error) => return Err(("ec2:CreateLaunchTemplate", error)),
            },
        };
        self.state().known.exists(name, &id, now);
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
        let known = &mut self.state().known;
        names.into_iter().for_each(|name| known.forget(name));
    }

    /// Removes what no launch has needed for a while. What cannot be removed now is tried again.
    ///
    /// # Errors
    /// The last one of EC2's that kept a template; the others were removed.
    pub(crate) async fn sweep(&self, aws: &Aws, now: Timestamp) -> Result<(), ApiError> {
        let unused = self.state().known.expire(now);
        let mut result = Ok(());
        for (name, id) in unused {
            match aws.ec2.delete_launch_template(&id).await {
                Ok(()) => tracing::debug!(launch_template = name, "removed an unused launch template"),
                Err(error) if error.is_not_found() => {}
                Err(error) => {
                    tracing::warn!(launch_template = name, %error, "cannot remove a launch template; it is tried again");
                    let known = &mut self.state().known;
                    if !known.find(&name, now) {
                        known.exists(&name, &id, now);
                    }
                    result = Err(error);
                }
            }
        }
        result
    }
}
