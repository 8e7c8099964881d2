//! What a class has in AWS besides instances: its instance profile, made and removed, and its launch templates (A2.3, A-034).
//!
//! Owns the calls to IAM, and the finalizer. Which profile a class gets is decided in `provider-aws`.

use std::collections::BTreeSet;
use std::time::Duration;

use spokeshave_api::EC2NodeClass;
use spokeshave_mirror::Incomplete;
use spokeshave_ports::{Write, WriteTarget, Writes};
use spokeshave_provider_aws::errors::ApiError;
use spokeshave_provider_aws::profiles::{self, Ensure, ProfileError, ProfileNeed, Step};
use spokeshave_provider_aws::{replies, templates};
use spokeshave_provider_common::status_patch::finalizer_patch;

use crate::classes::{FINALIZER, Failure, WHILE_IN_USE, failed, uses};
use crate::notices;
use crate::provider::Inner;

/// As many NodeClaims are named that a class waits for.
const NAMED: usize = 5;

impl Inner {
    async fn described_profile(&self, name: &str) -> Result<Option<profiles::Profile>, ApiError> {
        match self.aws.iam.profile(name).await {
            Ok(profile) => Ok(Some(plain(profile))),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The class's instance profile, made where it is to be made (A2.3).
    pub(crate) async fn instance_profile(&self, class: &EC2NodeClass) -> Result<String, ProfileError> {
        let options = &self.options;
        let named = class
            .status
            .as_ref()
            .and_then(|status| status.instance_profile.clone());
        let current = match named.filter(|_| class.spec.instance_profile.is_none() && !options.isolated_vpc) {
            Some(name) => self
                .described_profile(&name)
                .await
                .map_err(|error| ProfileError::of("GetInstanceProfile", "", &error))?,
            None => None,
        };
        let plan = profiles::plan(
            class,
            current.as_ref(),
            &options.region,
            &options.cluster_name,
            options.isolated_vpc,
        )?;
        match plan {
            ProfileNeed::Keep { name } => Ok(name),
            ProfileNeed::Ensure(wanted) => self.ensure_profile(&wanted).await,
        }
    }

    async fn ensure_profile(&self, wanted: &Ensure) -> Result<String, ProfileError> {
        let of = |call: &'static str, error: &ApiError| ProfileError::of(call, &wanted.role, error);
        let existing = self.described_profile(&wanted.name).await;
        let existing = existing.map_err(|error| of("GetInstanceProfile", &error))?;
        let iam = &self.aws.iam;
        for step in profiles::steps(wanted, existing.as_ref()) {
            match step {
                Step::Create => match iam
                    .create_profile(&wanted.name, &wanted.path, &wanted.tags.0)
                    .await
                {
                    Ok(()) => {}
                    Err(error) if error.is_already_exists() => {}
                    Err(error) => return Err(of("CreateInstanceProfile", &error)),
                },
                Step::RemoveRole => {
                    let role = existing
                        .as_ref()
                        .and_then(|profile| profile.role.clone())
                        .unwrap_or_default();
                    let removed = iam.remove_role(&wanted.name, &role).await;
                    removed.map_err(|error| of("RemoveRoleFromInstanceProfile", &error))?;
                }
                Step::AddRole => {
                    let added = iam.add_role(&wanted.name, &wanted.role).await;
                    added.map_err(|error| of("AddRoleToInstanceProfile", &error))?;
                }
            }
        }
        Ok(wanted.name.clone())
    }

    /// What a class that is deleted waits for: NodeClaims that use it, or that cannot be read and may. `None` when there is nothing.
    fn waits_for(&self, class: &EC2NodeClass) -> Result<Option<String>, Incomplete> {
        match self.claims.complete() {
            Ok(claims) => {
                let users = claims.iter().filter(|claim| uses(claim, class));
                let names: Vec<&str> = users.map(|claim| claim.name()).collect();
                let message = || format!("Waiting on NodeClaim termination for {}", some_of(&names));
                Ok((!names.is_empty()).then(message))
            }
            Err(Incomplete::Unreadable(names)) => {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                Ok(Some(format!(
                    "Waiting on NodeClaims that cannot be read and may use it: {}",
                    some_of(&names)
                )))
            }
            Err(not_listed) => Err(not_listed),
        }
    }

    /// Removes all that was made for a class, once no NodeClaim uses it.
    pub(crate) async fn finalize(
        &self,
        class: &EC2NodeClass,
        writes: &dyn Writes,
    ) -> Result<Duration, Failure> {
        let Some(patch) = finalizer_patch(&class.metadata, FINALIZER) else {
            return Ok(WHILE_IN_USE);
        };
        match self.waits_for(class) {
            Ok(None) => {}
            Ok(Some(message)) => {
                let notice = notices::of_class(class, false, "WaitingOnNodeClaimTermination", message);
                self.notices.tell(notice);
                return Ok(WHILE_IN_USE);
            }
            Err(_) => return Ok(WHILE_IN_USE),
        }
        self.remove_profiles(class).await?;
        self.remove_templates(class).await?;
        let write = Write {
            target: WriteTarget::NodeClass(self.kind().clone()),
            name: class.name().to_owned(),
            patch,
        };
        match self.classes.write(writes, write).await {
            Err(error) if !error.is_not_found() => Err(error.to_string()),
            _ => Ok(WHILE_IN_USE),
        }
    }

    async fn remove_profiles(&self, class: &EC2NodeClass) -> Result<(), Failure> {
        if self.options.isolated_vpc || class.spec.instance_profile.is_some() {
            return Ok(());
        }
        let (region, cluster) = (&self.options.region, &self.options.cluster_name);
        let uid = class.metadata.uid.as_deref().unwrap_or_default();
        let found = self
            .aws
            .iam
            .profiles(&profiles::class_path(region, cluster, uid))
            .await;
        let found: Vec<profiles::Profile> = found
            .map_err(|error| failed("iam:ListInstanceProfiles")(&error))?
            .into_iter()
            .map(plain)
            .collect();
        for profile in profiles::of_class(&found, region, cluster, uid) {
            self.remove_profile(profile).await?;
        }
        self.remove_legacy_profiles(class, &found).await
    }

    /// Karpenter before 1.7 made profiles without a path, and those that were made then are kept: IAM is asked for them by name, and says by their tags
    /// whose they are. `removed` are gone already.
    async fn remove_legacy_profiles(
        &self,
        class: &EC2NodeClass,
        removed: &[profiles::Profile],
    ) -> Result<(), Failure> {
        let (region, cluster) = (&self.options.region, &self.options.cluster_name);
        let current = class
            .status
            .as_ref()
            .and_then(|status| status.instance_profile.clone());
        let names = [profiles::legacy_name(region, cluster, class.name())]
            .into_iter()
            .chain(current);
        let names: BTreeSet<String> = names.filter(|name| profiles::is_name(name)).collect();
        let left = names
            .iter()
            .filter(|name| removed.iter().all(|profile| profile.name != **name));
        for name in left {
            let found = match self.aws.iam.profile(name).await {
                Ok(found) => found,
                Err(error) if error.is_not_found() => continue,
                Err(error) => return Err(failed("iam:GetInstanceProfile")(&error)),
            };
            if profiles::is_made_for(&found.tags, class.name(), region, cluster) {
                self.remove_profile(&plain(found)).await?;
            }
        }
        Ok(())
    }

    pub(crate) async fn remove_profile(&self, profile: &profiles::Profile) -> Result<(), Failure> {
        let gone = |result: Result<(), ApiError>, call: &str| match result {
            Err(error) if !error.is_not_found() => Err(failed(call)(&error)),
            _ => Ok(()),
        };
        if let Some(role) = &profile.role {
            let removed = self.aws.iam.remove_role(&profile.name, role).await;
            gone(removed, "iam:RemoveRoleFromInstanceProfile")?;
        }
        gone(
            self.aws.iam.delete_profile(&profile.name).await,
            "iam:DeleteInstanceProfile",
        )
    }

    async fn remove_templates(&self, class: &EC2NodeClass) -> Result<(), Failure> {
        let (cluster, name) = (&self.options.cluster_name, class.name());
        let found = self
            .aws
            .ec2
            .launch_templates(&templates::of_class(cluster, name))
            .await;
        let found = found.map_err(|error| failed("ec2:DescribeLaunchTemplates")(&error))?;
        for template in found
            .iter()
            .filter(|one| templates::is_of_class(one, cluster, name))
        {
            match self.aws.ec2.delete_launch_template(&template.id).await {
                Err(error) if !error.is_not_found() => {
                    return Err(failed("ec2:DeleteLaunchTemplate")(&error));
                }
                _ => self.templates.forget([template.name.as_str()]),
            }
        }
        Ok(())
    }
}

/// The first few names, and how many more there are.
fn some_of(names: &[&str]) -> String {
    let shown = names[..names.len().min(NAMED)].join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} and {more} other(s)"),
    }
}

pub(crate) fn plain(profile: replies::Profile) -> profiles::Profile {
    profiles::Profile {
        name: profile.name,
        path: profile.path,
        role: profile.roles.into_iter().next(),
    }
}
