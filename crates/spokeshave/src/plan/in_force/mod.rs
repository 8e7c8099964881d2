//! The settings in force: those of the operator that runs a cluster, under those that a command was given itself.
//!
//! Owns what is taken of them and what is said of that. How a Deployment is found is `finding`'s, how it is read `container`'s, what gates leave out `gates`'. It never
//! fails because of an operator: what is not known of it has its default, and is named.

pub(crate) mod container;
pub(crate) mod finding;
mod gates;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use anyhow::Result;
use kube::Client;
use spokeshave_plan::{Policy, nomination_window};
use spokeshave_provider_aws::instance_types::Settings as AwsSettings;
use spokeshave_provider_kwok::Catalog;
use spokeshave_story::settings::SettingsInForce;

use crate::plan::SourceArgs;
use crate::scheduler_config::SchedulerConfig;
use crate::settings::{DecidingArgs, Environment, Settings, put_together};

use container::DeploymentName;
use finding::Found;
use gates::Gates;

/// Settings by which is decided.
#[derive(Clone, Debug)]
pub(crate) struct InForce {
    policy: Policy,
    /// What is known of feature gates.
    pub(crate) gates: Gates,
    /// What instance types of EC2 depend on.
    pub(crate) aws: AwsSettings,
    /// What the operator knows of kube-scheduler, where it knows anything.
    pub(crate) scheduler: Option<Arc<SchedulerConfig>>,
    /// The instance types that the operator was given, where it was given any.
    pub(crate) catalog: Option<Arc<Catalog>>,
    /// It is known which instance types it was given.
    pub(crate) knows_catalog: bool,
    /// What is said of them; nothing of files for which none was given, and of `up` with the defaults.
    pub(crate) told: Option<SettingsInForce>,
    operator: Option<DeploymentName>,
    /// The cluster has answered whatever it was asked, if only by a refusal.
    is_answered: bool,
}

impl Default for InForce {
    /// The defaults, with nothing to be said of them.
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            gates: Gates::default(),
            aws: AwsSettings::default(),
            scheduler: None,
            catalog: None,
            knows_catalog: false,
            told: None,
            operator: None,
            is_answered: true,
        }
    }
}

impl InForce {
    /// Those of a command on files, of which no operator is known.
    ///
    /// # Errors
    /// One that was given is malformed.
    pub(crate) fn of_files(args: &DecidingArgs) -> Result<Self> {
        if args.given().next().is_none() {
            return Ok(Self::default());
        }
        Self::of(&Found::default(), args)
    }

    /// Those of the operator that runs a cluster, or of the one that is named.
    ///
    /// # Errors
    /// One that was given to the command is malformed.
    pub(crate) async fn of_cluster(client: &Client, args: &SourceArgs) -> Result<Self> {
        args.settings.check()?;
        let found = finding::find(client, args.operator.as_ref()).await;
        Self::of(&found, &args.settings)
    }

    /// The same a while later; where the cluster does not answer, those of before hold. The Deployment is asked for, or those with the labels of charts: all of them only
    /// once, where it is gone.
    ///
    /// # Errors
    /// One that was given to the command is malformed.
    pub(crate) async fn of_cluster_again(&self, client: &Client, args: &SourceArgs) -> Result<Self> {
        let found = match (&args.operator, &self.operator) {
            (None, Some(name)) => {
                let found = finding::find(client, Some(name)).await;
                match found.is_running || !found.is_answered {
                    true => found,
                    // Another may have taken over.
                    false => finding::find(client, None).await,
                }
            }
            (None, None) if self.is_answered => match finding::find_labelled(client).await {
                Some(found) => found,
                None => return Ok(self.clone()),
            },
            (named, _) => finding::find(client, named.as_ref()).await,
        };
        let later = Self::of(&found, &args.settings)?;
        Ok(if later.is_answered { later } else { self.clone() })
    }

    /// What was found under what was given.
    fn of(found: &Found, own: &DecidingArgs) -> Result<Self> {
        let none = Environment::new();
        let theirs = found.said.as_ref().map_or(&none, |said| &said.settings);
        let together = put_together(theirs, own)?;
        let mut notes = found.notes.clone();
        notes.extend(together.unreadable);
        let (settings, set) = (together.settings, together.given);
        let text = set.get("FEATURE_GATES").map_or("", String::as_str);
        let are_known = found
            .said
            .as_ref()
            .is_some_and(|said| said.knows("FEATURE_GATES"));
        let gates = match are_known {
            true => Gates::of_operator(settings.feature_gates),
            false => Gates::said(text),
        };
        let told = SettingsInForce {
            deployment: found.operator.as_ref().map(ToString::to_string),
            given: own.given().map(|(variable, _)| variable.to_owned()).collect(),
            set,
            notes,
        };
        Ok(Self {
            policy: policy(&settings),
            gates,
            aws: AwsSettings {
                vm_memory_overhead_percent: settings.vm_memory_overhead_percent,
                reserved_enis: settings.reserved_enis,
            },
            scheduler: found.scheduler.clone(),
            catalog: found.catalog.clone(),
            knows_catalog: found.knows_catalog,
            told: (told != SettingsInForce::default()).then_some(told),
            operator: found.operator.clone(),
            is_answered: found.is_answered,
        })
    }

    /// How it is decided. What packing remembers is not shared from one look to the next.
    pub(crate) fn policy(&self) -> Policy {
        Policy {
            tables: Policy::default().tables,
            ..self.policy.clone()
        }
    }

    /// What is known of kube-scheduler: from the file that the command was given, else from the operator's.
    pub(crate) fn scheduler_under(
        &self,
        args: &SourceArgs,
        own: Arc<SchedulerConfig>,
    ) -> Arc<SchedulerConfig> {
        let theirs = self
            .scheduler
            .as_ref()
            .filter(|_| args.scheduler_config.is_none());
        theirs.map_or(own, Arc::clone)
    }

    /// Instance types: from the file that the command was given, else from the operator's.
    pub(crate) fn catalog_under(&self, args: &SourceArgs, own: Arc<Catalog>) -> Arc<Catalog> {
        let theirs = self.catalog.as_ref().filter(|_| args.catalog.is_none());
        theirs.map_or(own, Arc::clone)
    }

    /// What there is to say: what was taken, and what is not known.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.told.as_ref().map(SettingsInForce::lines).unwrap_or_default()
    }
}

/// As `controllers::Options` makes it.
fn policy(settings: &Settings) -> Policy {
    let mut policy = Policy {
        preferences: settings.preference_policy,
        min_values: settings.min_values_policy,
        nomination_window: nomination_window(settings.batch_max_duration),
        ..Policy::default()
    };
    policy.disrupt.spot_to_spot = settings.feature_gates.spot_to_spot_consolidation;
    policy.disrupt.replacements = usize::try_from(settings.consolidation_replacements).unwrap_or(1);
    policy
}
