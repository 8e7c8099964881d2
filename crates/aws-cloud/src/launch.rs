//! The launch of an instance for a NodeClaim (A5): choice, templates, fleet, and what the reply means, also when it comes late.
//!
//! Owns the order of the steps. Each of them is decided in `provider-aws`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use spokeshave_api::{EC2NodeClass, NodeClaim};
use spokeshave_mirror::Absent;
use spokeshave_model::InstanceType;
use spokeshave_ports::CloudError;
use spokeshave_provider_aws::choice::{self, Choice, ChoiceError, Wanted};
use spokeshave_provider_aws::errors::{ApiError, steady};
use spokeshave_provider_aws::fleet::{self, LaunchFailure, Launched, Mark};
use spokeshave_provider_aws::instances;
use spokeshave_provider_aws::launch::{self, Context, LaunchError};
use spokeshave_provider_aws::requests::LaunchTemplateRequest;
use spokeshave_provider_aws::status::{self, NotReady};
use spokeshave_provider_aws::tags;
use spokeshave_provider_aws::user_data::UserDataError;

use crate::flight::{Flight, Sent};
use crate::notices;
use crate::provider::Inner;
use crate::recent;
use crate::reservations;

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

/// The types of a choice, each with the offerings that are asked for.
fn named(choice: &Choice<'_>) -> Arc<[InstanceType]> {
    let types = choice.candidates.iter().map(|candidate| InstanceType {
        offerings: candidate.offerings.iter().copied().cloned().collect(),
        ..candidate.instance_type.clone()
    });
    types.collect()
}

/// Why there is no instance.
enum Asked {
    TemplateGone,
    Failed(CloudError),
}

fn not_launched(why: Asked) -> CloudError {
    match why {
        Asked::TemplateGone => create(
            "LaunchTemplateNotFound",
            &"launch templates not found when creating fleet request",
        ),
        Asked::Failed(error) => error,
    }
}

impl Inner {
    /// One launch for a NodeClaim, however often and by how many it is asked for. One that was given up before EC2 has answered goes on.
    pub(crate) async fn create(
        &self,
        claim: &NodeClaim,
        types: Option<&[InstanceType]>,
    ) -> Result<NodeClaim, CloudError> {
        let Some(uid) = claim.metadata.uid.as_deref() else {
            return self.launch(claim, types, &mut None).await;
        };
        let slot = self.recent.slot(uid, self.clock.now());
        let mut launch = slot.lock().await;
        if let Some(launched) = recent::still_fresh(&launch, self.clock.now()) {
            return Ok(launched);
        }
        if let Some((_, launched)) = &launch.made {
            match self.instance(launched.provider_id().unwrap_or_default()).await {
                Ok(instance) if instance.state != "shutting-down" => return Ok(launched.clone()),
                Ok(_) => {}
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        let now = self.clock.now();
        let is_in_vain = |flight: &mut Flight| flight.is_old(now) || !flight.ticket.is_asked();
        drop(launch.flight.take_if(is_in_vain));
        let launched = self.launch(claim, types, &mut launch.flight).await;
        if let Ok(launched) = &launched {
            launch.made = Some((self.clock.now(), launched.clone()));
        }
        // Not before: until it is known whose an instance is, it must not be taken for nobody's. A call without an answer stays.
        drop(launch.flight.take_if(|flight| flight.is_over()));
        launched
    }

    /// The types that a class allows, once it is known what of them is for sale.
    pub(crate) fn sold(&self, class: &EC2NodeClass) -> Result<Arc<[InstanceType]>, CloudError> {
        let now = self.clock.now();
        let types = self.market.instance_types(class, &self.options, now);
        let unknown = || CloudError::Other("instance types of the region are not known yet".to_owned());
        let types = types.ok_or_else(unknown)?;
        let reservations = reservations::found_by(class);
        if self.options.reserved_capacity && !self.market.unasked(reservations).is_empty() {
            return Err(CloudError::Postponed {
                message: format!(
                    "EC2 has not told yet how many instances are free in the capacity reservations of EC2NodeClass {}",
                    class.name()
                ),
                again_after: Duration::from_secs(1),
            });
        }
        Ok(types)
    }

    /// Launches an instance for a NodeClaim from these types. A call that EC2 does not answer stays in `flight`: who comes with it goes on with that call,
    /// whatever would be launched now. One that EC2 was never asked for does not come here.
    async fn launch(
        &self,
        claim: &NodeClaim,
        types: Option<&[InstanceType]>,
        flight: &mut Option<Flight>,
    ) -> Result<NodeClaim, CloudError> {
        if let Some(going) = flight {
            match self.resume(claim, going).await {
                // EC2 has launched nothing.
                Err(Asked::TemplateGone) => {}
                answer => return answer.map_err(not_launched),
            }
        }
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
        let sold;
        let types = match types {
            Some(types) => types,
            None => {
                sold = self.sold(&class)?;
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
        // Another replica, or a hand, may have removed a template that is known here: it is made again, once.
        match self.fly(&context, &class, &choice, flight).await {
            Err(Asked::TemplateGone) => self.fly(&context, &class, &choice, flight).await,
            answer => answer,
        }
        .map_err(not_launched)
    }

    async fn fly(
        &self,
        context: &Context<'_>,
        class: &Arc<EC2NodeClass>,
        choice: &Choice<'_>,
        flight: &mut Option<Flight>,
    ) -> Result<NodeClaim, Asked> {
        let asked = self.ask(context, class, choice).await?;
        self.land(context.claim, flight.insert(asked)).await
    }

    /// Goes on with a call that EC2 has not answered.
    async fn resume(&self, claim: &NodeClaim, going: &mut Flight) -> Result<NodeClaim, Asked> {
        if !going.ticket.is_answered() {
            // Nobody may have needed them since.
            for sent in &going.sent {
                self.see_to(&sent.template.request).await?;
            }
        }
        self.land(claim, going).await
    }

    /// Sees to it that a launch template is there.
    async fn see_to(&self, template: &LaunchTemplateRequest) -> Result<(), Asked> {
        let now = self.clock.now();
        let ensured = self.templates.ensure(&self.aws, template, now).await;
        ensured.map_err(|(call, error)| call_failed(call, &error))
    }

    /// Asks for an instance. It is EC2 that is asked when somebody waits for the answer.
    async fn ask(
        &self,
        context: &Context<'_>,
        class: &Arc<EC2NodeClass>,
        choice: &Choice<'_>,
    ) -> Result<Flight, Asked> {
        let templates = launch::templates(context, choice);
        let templates = templates.map_err(|error| Asked::Failed(no_launch(error)))?;
        for template in &templates {
            self.measure_user_data(class, &template.request);
            self.see_to(&template.request).await?;
        }
        let subnets = class.status.as_ref().map_or(&[][..], |status| &status.subnets);
        let chosen = self.addresses().choose(subnets, &choice.candidates);
        let asked = launch::fleet(context, choice, &templates, &chosen);
        let (request, asked) = asked.map_err(|error| {
            self.addresses().settle(&chosen, &BTreeSet::new());
            Asked::Failed(no_launch(error))
        })?;
        let (ec2, uid) = (self.aws.ec2.clone(), context.claim.metadata.uid.as_deref());
        Ok(Flight {
            ticket: self
                .fleets
                .join(ec2, &self.clock, uid.unwrap_or_default(), request, || {
                    named(choice)
                }),
            class: class.clone(),
            sent: templates.into_iter().map(Sent::of).collect(),
            asked,
            chosen,
            addresses: self.addresses.clone(),
            since: self.clock.now(),
        })
    }

    /// Waits for the answer to a call, and says what it means.
    async fn land(&self, claim: &NodeClaim, going: &mut Flight) -> Result<NodeClaim, Asked> {
        let answer = going.ticket.share().await;
        let (launched, errors) = match answer {
            Ok(answer) => answer,
            Err(error) => {
                // EC2 may have taken the addresses where it has not answered.
                if going.ticket.is_answered() {
                    self.addresses().settle(&going.chosen, &BTreeSet::new());
                }
                if error.is_launch_template_not_found() {
                    let names = going.sent.iter().map(|sent| &sent.template.request);
                    self.templates
                        .forget(names.map(|request| request.launch_template_name.as_str()));
                    return Err(Asked::TemplateGone);
                }
                return Err(call_failed(CREATE_FLEET, &error));
            }
        };
        let used: BTreeSet<&str> = launched.iter().map(|one| one.place.subnet_id.as_str()).collect();
        self.addresses().settle(&going.chosen, &used);
        let marks = fleet::marks(&going.asked, &errors);
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
                .tell(notices::of_claim(claim, "SpotSLRCreationFailed", message));
        }
        let launched =
            fleet::outcome(launched, &errors).map_err(|error| Asked::Failed(failure(CREATE_FLEET, error)))?;
        self.claim(claim, going, &launched).map_err(Asked::Failed)
    }

    fn claim(&self, claim: &NodeClaim, going: &Flight, launched: &Launched) -> Result<NodeClaim, CloudError> {
        let (place, capacity_type) = (&launched.place, going.asked.capacity_type);
        let types = going.ticket.types();
        let found = going.template(place).and_then(|template| {
            let instance_type = types.iter().find(|one| one.name == place.instance_type)?;
            let mut offerings = instance_type.offerings.iter();
            let offering = offerings.find(|offering| {
                offering.zone() == Some(place.zone.as_str())
                    && offering.capacity_type() == Some(capacity_type)
                    && offering.reservation_id() == template.reservation_id.as_deref()
            })?;
            Some((template, instance_type, offering))
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
            claim,
            &going.class,
            (launched, template),
            (instance_type, offering),
            capacity_type,
        );
        self.remember(
            &launched.instance_id,
            &place.zone,
            &place.instance_type,
            capacity_type,
        );
        Ok(claim)
    }
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
