//! An EC2 for tests of single modules: fleets as a function says, and refusals for everything else.

use std::sync::{Mutex, PoisonError};

use futures::FutureExt as _;
use jiff::Timestamp;
use spokeshave_provider_aws::describe::InstanceTypeInfo;
use spokeshave_provider_aws::errors::ApiError;
use spokeshave_provider_aws::prices::SpotPrice;
use spokeshave_provider_aws::replies::{
    CapacityReservation, FleetReply, Image, Instance, InstanceStatus, LaunchTemplate, SecurityGroup, Subnet,
    Terminated,
};
use spokeshave_provider_aws::requests::look_up::{
    CapacityReservationsRequest, FilterRequest, ImagesRequest, InstancesRequest, LaunchTemplatesRequest,
    TagsRequest,
};
use spokeshave_provider_aws::requests::{Filter, FleetRequest, LaunchTemplateRequest, RunInstancesRequest};

use crate::ports::{AwsFuture, Ec2};

type Fleet = Box<dyn Fn(&FleetRequest) -> Result<FleetReply, ApiError> + Send + Sync>;

pub(crate) struct FakeEc2 {
    fleet: Fleet,
    asked: Mutex<Vec<u32>>,
}

impl std::fmt::Debug for FakeEc2 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FakeEc2").finish_non_exhaustive()
    }
}

impl FakeEc2 {
    pub(crate) fn with_fleets(
        fleet: impl Fn(&FleetRequest) -> Result<FleetReply, ApiError> + Send + Sync + 'static,
    ) -> Self {
        FakeEc2 {
            fleet: Box::new(fleet),
            asked: Mutex::default(),
        }
    }

    /// How many instances each call asked for.
    pub(crate) fn fleets_asked(&self) -> Vec<u32> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn refused<'a, T: Send + 'a>() -> AwsFuture<'a, T> {
    std::future::ready(Err(ApiError::new(
        "UnauthorizedOperation",
        "not part of this test",
    )))
    .boxed()
}

impl Ec2 for FakeEc2 {
    fn instance_types<'a>(&'a self, _filters: &'a [Filter]) -> AwsFuture<'a, Vec<InstanceTypeInfo>> {
        refused()
    }

    fn instance_type_offerings(&self) -> AwsFuture<'_, Vec<(String, String)>> {
        refused()
    }

    fn spot_prices(&self, _start: Timestamp) -> AwsFuture<'_, Vec<SpotPrice>> {
        refused()
    }

    fn subnets<'a>(&'a self, _request: &'a FilterRequest) -> AwsFuture<'a, Vec<Subnet>> {
        refused()
    }

    fn security_groups<'a>(&'a self, _request: &'a FilterRequest) -> AwsFuture<'a, Vec<SecurityGroup>> {
        refused()
    }

    fn images<'a>(&'a self, _request: &'a ImagesRequest) -> AwsFuture<'a, Vec<Image>> {
        refused()
    }

    fn capacity_reservations<'a>(
        &'a self,
        _request: &'a CapacityReservationsRequest,
    ) -> AwsFuture<'a, Vec<CapacityReservation>> {
        refused()
    }

    fn create_launch_template<'a>(
        &'a self,
        _request: &'a LaunchTemplateRequest,
    ) -> AwsFuture<'a, LaunchTemplate> {
        refused()
    }

    fn launch_templates<'a>(
        &'a self,
        _request: &'a LaunchTemplatesRequest,
    ) -> AwsFuture<'a, Vec<LaunchTemplate>> {
        refused()
    }

    fn delete_launch_template<'a>(&'a self, _id: &'a str) -> AwsFuture<'a, ()> {
        refused()
    }

    fn create_fleet<'a>(&'a self, request: &'a FleetRequest) -> AwsFuture<'a, FleetReply> {
        let wanted = request.target_capacity_specification.total_target_capacity;
        self.asked
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(wanted);
        std::future::ready((self.fleet)(request)).boxed()
    }

    fn rehearse_run_instances<'a>(&'a self, _request: &'a RunInstancesRequest) -> AwsFuture<'a, ()> {
        refused()
    }

    fn instances<'a>(&'a self, _request: &'a InstancesRequest) -> AwsFuture<'a, Vec<Instance>> {
        refused()
    }

    fn terminate_instances<'a>(&'a self, _ids: &'a [String]) -> AwsFuture<'a, Vec<Terminated>> {
        refused()
    }

    fn create_tags<'a>(&'a self, _request: &'a TagsRequest) -> AwsFuture<'a, ()> {
        refused()
    }

    fn instance_statuses<'a>(&'a self, _filters: &'a [Filter]) -> AwsFuture<'a, Vec<InstanceStatus>> {
        refused()
    }
}
