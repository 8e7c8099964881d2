//! The services of AWS as the provider needs them: one small trait each, with the calls of A13 and no others.
//!
//! Owns the shape of the calls. `aws-http` serves them over the network; a simulated AWS serves them in one process.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
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

use crate::meter::Meter;

/// What a call to AWS gives. An error without a code means that there was no answer.
pub type AwsFuture<'a, T> = BoxFuture<'a, Result<T, ApiError>>;

/// EC2 in one region. `Describe…` calls give all pages.
pub trait Ec2: Send + Sync + Debug {
    /// `DescribeInstanceTypes`.
    fn instance_types<'a>(&'a self, filters: &'a [Filter]) -> AwsFuture<'a, Vec<InstanceTypeInfo>>;
    /// `DescribeInstanceTypeOfferings` by zone: pairs of type and zone.
    fn instance_type_offerings(&self) -> AwsFuture<'_, Vec<(String, String)>>;
    /// `DescribeSpotPriceHistory`: the prices at a time.
    fn spot_prices(&self, start: Timestamp) -> AwsFuture<'_, Vec<SpotPrice>>;
    /// `DescribeSubnets`.
    fn subnets<'a>(&'a self, request: &'a FilterRequest) -> AwsFuture<'a, Vec<Subnet>>;
    /// `DescribeSecurityGroups`.
    fn security_groups<'a>(&'a self, request: &'a FilterRequest) -> AwsFuture<'a, Vec<SecurityGroup>>;
    /// `DescribeImages`.
    fn images<'a>(&'a self, request: &'a ImagesRequest) -> AwsFuture<'a, Vec<Image>>;
    /// `DescribeCapacityReservations`.
    fn capacity_reservations<'a>(
        &'a self,
        request: &'a CapacityReservationsRequest,
    ) -> AwsFuture<'a, Vec<CapacityReservation>>;
    /// `CreateLaunchTemplate`.
    fn create_launch_template<'a>(
        &'a self,
        request: &'a LaunchTemplateRequest,
    ) -> AwsFuture<'a, LaunchTemplate>;
    /// `DescribeLaunchTemplates`.
    fn launch_templates<'a>(
        &'a self,
        request: &'a LaunchTemplatesRequest,
    ) -> AwsFuture<'a, Vec<LaunchTemplate>>;
    /// `DeleteLaunchTemplate`, by ID.
    fn delete_launch_template<'a>(&'a self, id: &'a str) -> AwsFuture<'a, ()>;
    /// `CreateFleet`.
    fn create_fleet<'a>(&'a self, request: &'a FleetRequest) -> AwsFuture<'a, FleetReply>;
    /// `RunInstances` as a rehearsal.
    fn rehearse_run_instances<'a>(&'a self, request: &'a RunInstancesRequest) -> AwsFuture<'a, ()>;
    /// `DescribeInstances`.
    fn instances<'a>(&'a self, request: &'a InstancesRequest) -> AwsFuture<'a, Vec<Instance>>;
    /// `TerminateInstances`.
    fn terminate_instances<'a>(&'a self, ids: &'a [String]) -> AwsFuture<'a, Vec<Terminated>>;
    /// `CreateTags`.
    fn create_tags<'a>(&'a self, request: &'a TagsRequest) -> AwsFuture<'a, ()>;
    /// `DescribeInstanceStatus`.
    fn instance_statuses<'a>(&'a self, filters: &'a [Filter]) -> AwsFuture<'a, Vec<InstanceStatus>>;
}

/// Parameters of Systems Manager.
pub trait Ssm: Send + Sync + Debug {
    /// `GetParameter`: the value.
    fn parameter<'a>(&'a self, name: &'a str) -> AwsFuture<'a, String>;
}

/// Instance profiles of IAM.
pub trait Iam: Send + Sync + Debug {
    /// `GetInstanceProfile`.
    fn profile<'a>(&'a self, name: &'a str) -> AwsFuture<'a, Profile>;
    /// `CreateInstanceProfile`.
    fn create_profile<'a>(&'a self, name: &'a str, path: &'a str, tags: &'a Tags) -> AwsFuture<'a, ()>;
    /// `AddRoleToInstanceProfile`.
    fn add_role<'a>(&'a self, name: &'a str, role: &'a str) -> AwsFuture<'a, ()>;
    /// `RemoveRoleFromInstanceProfile`.
    fn remove_role<'a>(&'a self, name: &'a str, role: &'a str) -> AwsFuture<'a, ()>;
    /// `DeleteInstanceProfile`.
    fn delete_profile<'a>(&'a self, name: &'a str) -> AwsFuture<'a, ()>;
    /// `ListInstanceProfiles` below a path.
    fn profiles<'a>(&'a self, path_prefix: &'a str) -> AwsFuture<'a, Vec<Profile>>;
}

/// The cluster as EKS knows it.
pub trait Eks: Send + Sync + Debug {
    /// `DescribeCluster`.
    fn cluster<'a>(&'a self, name: &'a str) -> AwsFuture<'a, Cluster>;
}

/// The queue of interruptions.
pub trait Sqs: Send + Sync + Debug {
    /// `GetQueueUrl`.
    fn queue_url<'a>(&'a self, name: &'a str) -> AwsFuture<'a, String>;
    /// `ReceiveMessage`: up to ten, waiting up to `wait` for the first; each comes again after `visibility`.
    fn receive<'a>(
        &'a self,
        url: &'a str,
        wait: Duration,
        visibility: Duration,
    ) -> AwsFuture<'a, Vec<Received>>;
    /// `DeleteMessage`.
    fn delete<'a>(&'a self, url: &'a str, receipt_handle: &'a str) -> AwsFuture<'a, ()>;
}

/// On-demand prices.
pub trait Pricing: Send + Sync + Debug {
    /// `GetProducts` of EC2: one text of JSON a product.
    fn products<'a>(&'a self, filters: &'a [(String, String)]) -> AwsFuture<'a, Vec<String>>;
}

/// IDs of zones from which traffic is shifted away, with the end of the shift.
pub type Shifts = BTreeMap<String, Option<Timestamp>>;

/// Zonal shifts of Application Recovery Controller.
pub trait ZonalShift: Send + Sync + Debug {
    /// `GetManagedResource` of a cluster: IDs of the zones from which its traffic is shifted away, and until when, where that is known.
    fn shifted<'a>(&'a self, cluster_arn: &'a str) -> AwsFuture<'a, Shifts>;
}

/// All services.
#[derive(Clone, Debug)]
pub struct Aws {
    /// EC2.
    pub ec2: Arc<dyn Ec2>,
    /// Systems Manager.
    pub ssm: Arc<dyn Ssm>,
    /// IAM.
    pub iam: Arc<dyn Iam>,
    /// EKS.
    pub eks: Arc<dyn Eks>,
    /// SQS.
    pub sqs: Arc<dyn Sqs>,
    /// Pricing.
    pub pricing: Arc<dyn Pricing>,
    /// Zonal shifts.
    pub zonal_shift: Arc<dyn ZonalShift>,
    /// What is counted of the calls.
    pub meter: Meter,
}
