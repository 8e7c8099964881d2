//! The services of `aws-cloud`, served over HTTP.
//!
//! Owns nothing but the translation of errors: what a call is and what it replies is in the modules of the services.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use jiff::Timestamp;
use spokeshave_aws_cloud::ports::{
    Aws, AwsFuture, Ec2 as Ec2Port, Eks, Iam, Pricing, Shifts, Sqs, Ssm, ZonalShift,
};
use spokeshave_provider_aws::describe::InstanceTypeInfo;
use spokeshave_provider_aws::errors::ApiError;
use spokeshave_provider_aws::prices::SpotPrice;
use spokeshave_provider_aws::replies::{
    CapacityReservation, Cluster, FleetReply, Image, Instance, InstanceStatus, LaunchTemplate, Profile,
    Received, SecurityGroup, Subnet, Tags, Terminated,
};
use spokeshave_provider_aws::requests::look_up::{
    CapacityReservationsRequest, FilterRequest, ImagesRequest, InstancesRequest, LaunchTemplatesRequest,
    TagsRequest,
};
use spokeshave_provider_aws::requests::{Filter, FleetRequest, LaunchTemplateRequest, RunInstancesRequest};

use crate::ec2::Ec2;
use crate::error::CallError;
use crate::session::Session;
use crate::{arc, eks, iam, pricing, sqs, ssm};

/// All services, as the session reaches them.
#[must_use]
pub fn services(session: &Session) -> Aws {
    let session = Arc::new(session.clone());
    Aws {
        ec2: Arc::new(Ec2::new((*session).clone())),
        ssm: session.clone(),
        iam: session.clone(),
        eks: session.clone(),
        sqs: session.clone(),
        zonal_shift: session.clone(),
        meter: session.meter(),
        pricing: session,
    }
}

/// An error as decisions know it; without a code where there was no answer.
impl From<CallError> for ApiError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Service {
                status,
                code,
                message,
                request_id,
                ..
            } => ApiError {
                code,
                message: if request_id.is_empty() {
                    message
                } else {
                    format!("{message} (request {request_id})")
                },
                server_fault: status >= 500,
            },
            other => ApiError {
                code: String::new(),
                message: other.to_string(),
                server_fault: false,
            },
        }
    }
}

fn boxed<'a, T>(call: impl Future<Output = Result<T, CallError>> + Send + 'a) -> AwsFuture<'a, T> {
    call.map(|result| result.map_err(ApiError::from)).boxed()
}

impl Ec2Port for Ec2 {
    fn instance_types<'a>(&'a self, filters: &'a [Filter]) -> AwsFuture<'a, Vec<InstanceTypeInfo>> {
        boxed(self.instance_types(filters))
    }

    fn instance_type_offerings(&self) -> AwsFuture<'_, Vec<(String, String)>> {
        boxed(self.instance_type_offerings())
    }

    fn spot_prices(&self, start: Timestamp) -> AwsFuture<'_, Vec<SpotPrice>> {
        boxed(self.spot_prices(start))
    }

    fn subnets<'a>(&'a self, request: &'a FilterRequest) -> AwsFuture<'a, Vec<Subnet>> {
        boxed(self.subnets(request))
    }

    fn security_groups<'a>(&'a self, request: &'a FilterRequest) -> AwsFuture<'a, Vec<SecurityGroup>> {
        boxed(self.security_groups(request))
    }

    fn images<'a>(&'a self, request: &'a ImagesRequest) -> AwsFuture<'a, Vec<Image>> {
        boxed(self.images(request))
    }

    fn capacity_reservations<'a>(
        &'a self,
        request: &'a CapacityReservationsRequest,
    ) -> AwsFuture<'a, Vec<CapacityReservation>> {
        boxed(self.capacity_reservations(request))
    }

    fn create_launch_template<'a>(
        &'a self,
        request: &'a LaunchTemplateRequest,
    ) -> AwsFuture<'a, LaunchTemplate> {
        boxed(self.create_launch_template(request))
    }

    fn launch_templates<'a>(
        &'a self,
        request: &'a LaunchTemplatesRequest,
    ) -> AwsFuture<'a, Vec<LaunchTemplate>> {
        boxed(self.launch_templates(request))
    }

    fn delete_launch_template<'a>(&'a self, id: &'a str) -> AwsFuture<'a, ()> {
        boxed(self.delete_launch_template(id))
    }

    fn create_fleet<'a>(&'a self, request: &'a FleetRequest) -> AwsFuture<'a, FleetReply> {
        boxed(self.create_fleet(request))
    }

    fn rehearse_run_instances<'a>(&'a self, request: &'a RunInstancesRequest) -> AwsFuture<'a, ()> {
        boxed(self.rehearse_run_instances(request))
    }

    fn instances<'a>(&'a self, request: &'a InstancesRequest) -> AwsFuture<'a, Vec<Instance>> {
        boxed(self.instances(request))
    }

    fn terminate_instances<'a>(&'a self, ids: &'a [String]) -> AwsFuture<'a, Vec<Terminated>> {
        boxed(self.terminate_instances(ids))
    }

    fn create_tags<'a>(&'a self, request: &'a TagsRequest) -> AwsFuture<'a, ()> {
        boxed(self.create_tags(request))
    }

    fn instance_statuses<'a>(&'a self, filters: &'a [Filter]) -> AwsFuture<'a, Vec<InstanceStatus>> {
        boxed(self.instance_statuses(filters))
    }
}

impl Ssm for Session {
    fn parameter<'a>(&'a self, name: &'a str) -> AwsFuture<'a, String> {
        boxed(ssm::parameter(self, name))
    }
}

impl Iam for Session {
    fn profile<'a>(&'a self, name: &'a str) -> AwsFuture<'a, Profile> {
        boxed(iam::get_profile(self, name))
    }

    fn create_profile<'a>(&'a self, name: &'a str, path: &'a str, tags: &'a Tags) -> AwsFuture<'a, ()> {
        boxed(iam::create_profile(self, name, path, tags))
    }

    fn add_role<'a>(&'a self, name: &'a str, role: &'a str) -> AwsFuture<'a, ()> {
        boxed(iam::add_role(self, name, role))
    }

    fn remove_role<'a>(&'a self, name: &'a str, role: &'a str) -> AwsFuture<'a, ()> {
        boxed(iam::remove_role(self, name, role))
    }

    fn delete_profile<'a>(&'a self, name: &'a str) -> AwsFuture<'a, ()> {
        boxed(iam::delete_profile(self, name))
    }

    fn profiles<'a>(&'a self, path_prefix: &'a str) -> AwsFuture<'a, Vec<Profile>> {
        boxed(iam::list_profiles(self, path_prefix))
    }
}

impl Eks for Session {
    fn cluster<'a>(&'a self, name: &'a str) -> AwsFuture<'a, Cluster> {
        boxed(eks::cluster(self, name))
    }
}

impl Sqs for Session {
    fn queue_url<'a>(&'a self, name: &'a str) -> AwsFuture<'a, String> {
        boxed(sqs::queue_url(self, name))
    }

    fn receive<'a>(
        &'a self,
        url: &'a str,
        wait: Duration,
        visibility: Duration,
    ) -> AwsFuture<'a, Vec<Received>> {
        boxed(sqs::receive(self, url, wait, visibility))
    }

    fn delete<'a>(&'a self, url: &'a str, receipt_handle: &'a str) -> AwsFuture<'a, ()> {
        boxed(sqs::delete(self, url, receipt_handle))
    }
}

impl ZonalShift for Session {
    fn shifted<'a>(&'a self, cluster_arn: &'a str) -> AwsFuture<'a, Shifts> {
        boxed(arc::shifted(self, cluster_arn))
    }
}

impl Pricing for Session {
    fn products<'a>(&'a self, filters: &'a [(String, String)]) -> AwsFuture<'a, Vec<String>> {
        boxed(pricing::products(self, filters))
    }
}
