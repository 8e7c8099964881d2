//! The services around EC2: parameters, instance profiles, the cluster, the queue, prices.
//!
//! Owns what each of their calls finds and refuses. EC2's own calls are in [`calls`](crate::calls).

use std::time::Duration;

use futures::FutureExt as _;
use serde_json::json;
use spokeshave_aws_cloud::ports::{AwsFuture, Eks, Iam, Pricing, Shifts, Sqs, Ssm, ZonalShift};
use spokeshave_provider_aws::errors::ApiError;
use spokeshave_provider_aws::replies::{Cluster, Profile, Received, Tags};

use crate::account::OWNER;
use crate::calls::{Services, kept};
use crate::catalogue::{self, REGION};
use crate::instants::later;
use crate::state::{State, StoredProfile};

impl Ssm for Services {
    fn parameter<'a>(&'a self, name: &'a str) -> AwsFuture<'a, String> {
        self.call("GetParameter", move |state, now| {
            state.account.parameter(name, now)
        })
    }
}

impl ZonalShift for Services {
    fn shifted<'a>(&'a self, _cluster_arn: &'a str) -> AwsFuture<'a, Shifts> {
        self.call("GetManagedResource", move |state, _| {
            Ok(state.shifted.iter().map(|zone| (zone.clone(), None)).collect())
        })
    }
}

fn no_such_profile(name: &str) -> ApiError {
    ApiError::new(
        "NoSuchEntity",
        &format!("Instance Profile {name} cannot be found."),
    )
}

fn stored<'a>(state: &'a mut State, name: &str) -> Result<&'a mut Profile, ApiError> {
    let stored = state.profiles.get_mut(name);
    stored
        .map(|stored| &mut stored.reply)
        .ok_or_else(|| no_such_profile(name))
}

impl Iam for Services {
    fn profile<'a>(&'a self, name: &'a str) -> AwsFuture<'a, Profile> {
        self.call("GetInstanceProfile", move |state, _| {
            stored(state, name).map(|profile| profile.clone())
        })
    }

    fn create_profile<'a>(&'a self, name: &'a str, path: &'a str, tags: &'a Tags) -> AwsFuture<'a, ()> {
        self.call("CreateInstanceProfile", move |state, now| {
            if state.profiles.contains_key(name) {
                return Err(ApiError::new(
                    "EntityAlreadyExists",
                    &format!("Instance Profile {name} already exists."),
                ));
            }
            let reply = Profile {
                name: name.to_owned(),
                path: path.to_owned(),
                roles: Vec::new(),
                tags: tags.clone(),
            };
            let known_at = later(now, state.options.profile_delay);
            state
                .profiles
                .insert(name.to_owned(), StoredProfile { reply, known_at });
            Ok(())
        })
    }

    fn add_role<'a>(&'a self, name: &'a str, role: &'a str) -> AwsFuture<'a, ()> {
        self.call("AddRoleToInstanceProfile", move |state, _| {
            if !state.account.has_role(role) {
                return Err(ApiError::new(
                    "NoSuchEntity",
                    &format!("The role with name {role} cannot be found."),
                ));
            }
            let profile = stored(state, name)?;
            if !profile.roles.is_empty() {
                return Err(ApiError::new(
                    "LimitExceeded",
                    "Cannot exceed quota for InstanceSessionsPerInstanceProfile: 1",
                ));
            }
            profile.roles.push(role.to_owned());
            Ok(())
        })
    }

    fn remove_role<'a>(&'a self, name: &'a str, role: &'a str) -> AwsFuture<'a, ()> {
        self.call("RemoveRoleFromInstanceProfile", move |state, _| {
            let profile = stored(state, name)?;
            if !profile.roles.iter().any(|one| one == role) {
                return Err(ApiError::new(
                    "NoSuchEntity",
                    &format!("Role {role} in Instance Profile {name} cannot be found."),
                ));
            }
            profile.roles.retain(|one| one != role);
            Ok(())
        })
    }

    fn delete_profile<'a>(&'a self, name: &'a str) -> AwsFuture<'a, ()> {
        self.call("DeleteInstanceProfile", move |state, _| {
            if !stored(state, name)?.roles.is_empty() {
                return Err(ApiError::new(
                    "DeleteConflict",
                    "Cannot delete entity, must remove roles from instance profile first.",
                ));
            }
            state.profiles.remove(name);
            Ok(())
        })
    }

    fn profiles<'a>(&'a self, path_prefix: &'a str) -> AwsFuture<'a, Vec<Profile>> {
        self.call("ListInstanceProfiles", move |state, _| {
            let profiles = state.profiles.values().map(|stored| &stored.reply);
            let mut found = kept(profiles, |profile| Ok(profile.path.starts_with(path_prefix)))?;
            // IAM tells of no tags in lists.
            found.iter_mut().for_each(|profile| profile.tags.clear());
            Ok(found)
        })
    }
}

impl Eks for Services {
    fn cluster<'a>(&'a self, name: &'a str) -> AwsFuture<'a, Cluster> {
        self.call("DescribeCluster", move |state, _| {
            let options = &state.options;
            if options.cluster_name != name {
                return Err(ApiError::new(
                    "ResourceNotFoundException",
                    &format!("No cluster found for name: {name}."),
                ));
            }
            Ok(Cluster {
                endpoint: options.endpoint.clone(),
                certificate_authority: options.certificate_authority.clone(),
                version: format!("1.{}", options.kubernetes_minor),
                arn: format!("arn:aws:eks:{REGION}:{OWNER}:cluster/{name}"),
                service_ipv4_cidr: Some("10.100.0.0/16".to_owned()),
                service_ipv6_cidr: None,
                zonal_shift: false,
            })
        })
    }
}

fn no_such_queue() -> ApiError {
    ApiError::new(
        "AWS.SimpleQueueService.NonExistentQueue",
        "The specified queue does not exist.",
    )
}

fn queue_url(name: &str) -> String {
    format!("https://sqs.{REGION}.amazonaws.com/{OWNER}/{name}")
}

fn check_queue(state: &State, url: &str) -> Result<(), ApiError> {
    let own = state.options.queue_name.as_deref().map(queue_url);
    if own.as_deref() == Some(url) {
        Ok(())
    } else {
        Err(no_such_queue())
    }
}

impl Sqs for Services {
    fn queue_url<'a>(&'a self, name: &'a str) -> AwsFuture<'a, String> {
        self.call("GetQueueUrl", move |state, _| {
            let url = queue_url(name);
            check_queue(state, &url).map(|()| url)
        })
    }

    fn receive<'a>(
        &'a self,
        url: &'a str,
        wait: Duration,
        visibility: Duration,
    ) -> AwsFuture<'a, Vec<Received>> {
        async move {
            let until = later(self.cloud.clock().now(), wait);
            self.call("ReceiveMessage", |state, _| check_queue(state, url))
                .await?;
            // SQS holds the call until there is something to give.
            loop {
                let changed = self.cloud.changed();
                let now = self.cloud.clock().now();
                let wake = {
                    let mut state = self.cloud.state();
                    let received = state.queue.receive(visibility, now);
                    if !received.is_empty() || now >= until {
                        return Ok(received);
                    }
                    let due = [Some(until), state.queue.next(), state.next_due()];
                    due.into_iter().flatten().filter(|at| *at > now).min()
                };
                tokio::select! {
                    biased;
                    () = changed => {}
                    () = self.cloud.clock().sleep_until(wake.unwrap_or(until)) => {}
                }
            }
        }
        .boxed()
    }

    fn delete<'a>(&'a self, url: &'a str, receipt_handle: &'a str) -> AwsFuture<'a, ()> {
        self.call("DeleteMessage", move |state, _| {
            check_queue(state, url)?;
            if state.queue.delete(receipt_handle) {
                return Ok(());
            }
            Err(ApiError::new(
                "ReceiptHandleIsInvalid",
                &format!("The input receipt handle \"{receipt_handle}\" is invalid."),
            ))
        })
    }
}

impl Pricing for Services {
    fn products<'a>(&'a self, filters: &'a [(String, String)]) -> AwsFuture<'a, Vec<String>> {
        self.call("GetProducts", move |state, _| {
            let wants = |field: &str, value: &str| filters.iter().any(|(name, wanted)| name == field && wanted == value);
            let whole = wants("productFamily", "Compute Instance (bare metal)");
            let listed = |name: &String| !state.unlisted.contains(name);
            let types = state.catalogue.types.values().filter(|info| info.bare_metal == whole && listed(&info.instance_type));
            let products = types.filter_map(|info| {
                let price = catalogue::on_demand(&info.instance_type)?;
                let product = json!({
                    "product": {"attributes": {"instanceType": info.instance_type}},
                    "terms": {"OnDemand": {"term": {"priceDimensions": {"hour": {"unit": "Hrs", "pricePerUnit": {"USD": price.to_string()}}}}}},
                });
                Some(product.to_string())
            });
            Ok(products.collect())
        })
    }
}
