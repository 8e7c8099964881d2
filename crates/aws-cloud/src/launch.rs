//! The launch of an instance for a NodeClaim (A5): choice, templates, fleet, and what the reply means.
//!
//! Owns the order of the steps. Each of them is decided in `provider-aws`.

use std::collections::BTreeSet;

use spokeshave_api::{EC2NodeClass, NodeClaim};
use spokeshave_mirror::Absent;
use spokeshave_model::{InstanceType, Offering};
use spokeshave_ports::CloudError;
use spokeshave_provider_aws::choice::{self, Choice, ChoiceError, Wanted};
use spokeshave_provider_aws::errors::{ApiError, steady};
use spokeshave_provider_aws::fleet::{self, LaunchFailure, Launched, Mark};
use spokeshave_provider_aws::instances;
use spokeshave_provider_aws::launch::{self, Context, LaunchError, Template};
use spokeshave_provider_aws::status::{self, NotReady};
use spokeshave_provider_aws::tags;
use spokeshave_provider_aws::user_data::UserDataError;

use crate::notices;
use crate::provider::Inner;

const CREATE_FLEET: &str = "ec2:CreateFleet";

/// Upstream's words say what kind of failure it is; behind them stands what AWS said, and what to do about it.
fn failure(call: &str, failure: LaunchFailure) -> CloudError {
    match failure {
        LaunchFailure::InsufficientCapacity(message) => CloudError::InsufficientCapacity(message),
        LaunchFailure::Create {
            reason,
            message,
            cause,
        } => CloudError::Create {
            reason: reason.to_owned(),
            message: match cause {
                Some(cause) => format!("{message}; {}", steady(&cause.told(call))),
                None => message,
            },
        },
    }
}

fn create(reason: &str, error: &impl ToString) -> CloudError {
    CloudError::Create {
        reason: reason.to_owned(),
        message: error.to_string(),
    }
}

fn no_choice(error: ChoiceError) -> CloudError {
    match error {
        ChoiceError::NothingAvailable | ChoiceError::MinValues(_) => {
            CloudError::InsufficientCapacity(error.to_string())
        }
        ChoiceError::Claim(_) => create("InvalidNodeClaim", &error),
    }
}

fn no_launch(error: LaunchError) -> CloudError {
    match error {
        LaunchError::NoPlace => CloudError::InsufficientCapacity(error.to_string()),
        LaunchError::UserData(UserDataError::ClusterCidrUnknown | UserDataError::ClusterEndpointUnknown) => {
            CloudError::NodeClassNotReady(error.to_string())
        }
        LaunchError::UserData(UserDataError::TooLarge { .. }) => create("UserDataSizeLimitExceeded", &error),
        LaunchError::NoImages | LaunchError::NoImageFits(_) => create("AMINotFound", &error),
        LaunchError::UserData(_) => create("InvalidUserData", &error),
    }
}

/// Whether a class may be launched from.
fn ready(class: &EC2NodeClass) -> Result<(), CloudError> {
    status::readiness(class).map_err(|not_ready| match not_ready {
        NotReady::Class(message) => {
            CloudError::NodeClassNotReady(format!("EC2NodeClass {} is not ready: {message}", class.name()))
        }
        NotReady::Unknown => create(
            "NodeClassReadinessUnknown",
            &format!("EC2NodeClass {}: {not_ready}", class.name()),
        ),
    })
}

fn call_failed(call: &str, error: &ApiError) -> Asked {
    let failed = if error.code.is_empty() {
        CloudError::Timeout(error.message.clone())
    } else {
        failure(call, fleet::call_failure(error))
    };
    tracing::debug!(call, %error, "a call of a launch failed");
    Asked::Failed(failed)
}

impl Inner {
    /// Launches an instance for a NodeClaim from these types.
    pub(crate) async fn launch(
        &self,
        claim: &NodeClaim,
        types: Option<&[InstanceType]>,
    ) -> Result<NodeClaim, CloudError> {
        let name = &claim.spec.node_class_ref.name;
        let class = self.classes.find(name).map_err(|absent| {
            if absent == Absent::Gone {
                let message = "Failed resolving NodeClass".to_owned();
                self.notices
                    .tell(notices::of_claim(claim, "FailedResolvingNodeClass", message));
            }
            absent.launch_error(EC2NodeClass::KIND, name)
        })?;
        ready(&class)?;
        let now = self.clock.now();
        let sold;
        let types = match types {
            Some(types) => types,
            None => {
                sold = self
                    .market
                    .instance_types(&class, &self.options, now)
                    .ok_or_else(|| {
                        CloudError::Other("instance types of the region are not known yet".to_owned())
                    })?;
                &sold
            }
        };
        let wanted = Wanted::of(claim).map_err(|error| no_choice(error.into()))?;
        let relaxed = claim.annotation(spokeshave_api::labels::MIN_VALUES_RELAXED) == Some("true");
        let choice = choice::choose(types, &wanted, relaxed).map_err(no_choice)?;
        if choice.is_inflexible_fallback {
            tracing::warn!(
                NodeClaim = claim.name(),
                instance_types = choice.candidates.len(),
                "at least 5 instance types are recommended when flexible to spot but launching on-demand"
            );
        }
        let tags = tags::launch(
            &class,
            claim.node_pool().unwrap_or_default(),
            &self.options.cluster_name,
        )
        .map_err(|error| create("InvalidTags", &error))?;
        if !self.dns.is_settled() {
            return Err(CloudError::Other(
                "the address of the DNS service is not known yet".to_owned(),
            ));
        }
        let cluster = self.cluster();
        let context = Context {
            class: &class,
            claim,
            cluster: &cluster,
            region: &self.options.region,
            tags: &tags,
            reserved_capacity: self.options.reserved_capacity,
        };
        let templates = launch::templates(&context, &choice).map_err(no_launch)?;
        // Another replica, or a hand, may have removed a template that is known here: it is made again, once.
        match self.ask(&context, &choice, &templates).await {
            Err(Asked::TemplateGone) => self.ask(&context, &choice, &templates).await,
            answer => answer,
        }
        .map_err(|asked| match asked {
            Asked::TemplateGone => create(
                "LaunchTemplateNotFound",
                &"launch templates not found when creating fleet request",
            ),
            Asked::Failed(error) => error,
        })
    }

    async fn ask(
        &self,
        context: &Context<'_>,
        choice: &Choice<'_>,
        templates: &[Template<'_>],
    ) -> Result<NodeClaim, Asked> {
        for template in templates {
            self.measure_user_data(context.class, &template.request);
            let ensured = self
                .templates
                .ensure(&self.aws, &template.request, self.clock.now())
                .await;
            ensured.map_err(|(call, error)| call_failed(call, &error))?;
        }
        let subnets = context
            .class
            .status
            .as_ref()
            .map_or(&[][..], |status| &status.subnets);
        let chosen = self.addresses().choose(subnets, &choice.candidates);
        let asked = launch::fleet(context, choice, templates, &chosen);
        let (request, asked) = asked.map_err(|error| {
            self.addresses().settle(&chosen, &BTreeSet::new());
            Asked::Failed(no_launch(error))
        })?;
        let names: Vec<String> = request.launch_template_names().map(str::to_owned).collect();
        let ec2 = self.aws.ec2.clone();
        let answer = self.fleets.launch(ec2, &self.clock, request).await;
        let (launched, errors) = match answer {
            Ok(answer) => answer,
            Err(error) => {
                self.addresses().settle(&chosen, &BTreeSet::new());
                if error.is_launch_template_not_found() {
                    self.templates.forget(names.iter().map(String::as_str));
                    return Err(Asked::TemplateGone);
                }
                return Err(call_failed(CREATE_FLEET, &error));
            }
        };
        let used: BTreeSet<&str> = launched.iter().map(|one| one.place.subnet_id.as_str()).collect();
        self.addresses().settle(&chosen, &used);
        let marks = fleet::marks(&asked, &errors);
        for mark in &marks {
            // After the addresses that were set aside are given back: it has none to give.
            if let Mark::Subnet(id) = mark {
                self.addresses().exhausted(id);
            }
        }
        self.market.apply(marks, self.clock.now());
        if let Some(failed) = errors.iter().find(|it| it.error.is_service_linked_role_missing()) {
            let message = no_spot_role(&failed.error.code);
            self.notices
                .tell(notices::of_claim(context.claim, "SpotSLRCreationFailed", message));
        }
        let launched =
            fleet::outcome(launched, &errors).map_err(|error| Asked::Failed(failure(CREATE_FLEET, error)))?;
        self.claim(context, choice, templates, &launched)
            .map_err(Asked::Failed)
    }

    fn claim(
        &self,
        context: &Context<'_>,
        choice: &Choice<'_>,
        templates: &[Template<'_>],
        launched: &Launched,
    ) -> Result<NodeClaim, CloudError> {
        let place = &launched.place;
        let found = templates.iter().find_map(|template| {
            let candidate = template
                .candidates
                .iter()
                .find(|one| one.instance_type.name == place.instance_type)?;
            let in_zone = |offering: &&&Offering| offering.zone() == Some(place.zone.as_str());
            let offering: &Offering = candidate.offerings.iter().find(in_zone)?;
            Some((template, candidate.instance_type, offering))
        });
        let Some((template, instance_type, offering)) = found else {
            let (id, name, zone) = (&launched.instance_id, &place.instance_type, &place.zone);
            // Garbage collection takes it back: no NodeClaim names it.
            return Err(create(
                "LaunchFailed",
                &format!("EC2 launched {id} of type {name} in zone {zone}, which was not asked for"),
            ));
        };
        if let Some(id) = &template.reservation_id {
            self.market.launched(id);
        }
        let claim = instances::launched(
            context.claim,
            context.class,
            (launched, template),
            (instance_type, offering),
            choice.capacity_type,
        );
        self.remember(
            &launched.instance_id,
            &place.zone,
            &place.instance_type,
            choice.capacity_type,
        );
        Ok(claim)
    }
}

/// Why there is no instance.
enum Asked {
    TemplateGone,
    Failed(CloudError),
}

/// Upstream's words, whose event has no reason, and what helps: the operator may not create the role.
fn no_spot_role(code: &str) -> String {
    format!(
        "Attempted to launch a spot instance but failed due to {code:?}: create the service-linked role of spot, once for the account: \
         aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"
    )
}

#[cfg(test)]
mod tests {
    use super::no_spot_role;

    #[test]
    fn a_079_a_role_of_spot_that_is_missing_is_told_with_the_command_that_creates_it() {
        let message = no_spot_role("AuthFailure.ServiceLinkedRoleCreationNotPermitted");
        assert_eq!(
            message,
            "Attempted to launch a spot instance but failed due to \"AuthFailure.ServiceLinkedRoleCreationNotPermitted\": create the service-linked role of spot, \
             once for the account: aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"
        );
    }
}
