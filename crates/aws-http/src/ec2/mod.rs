//! The calls to EC2 (A13, lines 1 to 17): parameters out, values in, page by page.
//!
//! Owns the names of calls and lists. Filters are repeated in the program where what comes out is changed or deleted: an emulator or a proxy may ignore
//! them (A14.4).

mod decode;
mod types;

use roxmltree::Document;
use serde::Serialize;
use spokeshave_provider_aws::describe::InstanceTypeInfo;
use spokeshave_provider_aws::prices::SpotPrice;
use spokeshave_provider_aws::requests::look_up::{
    CapacityReservationsRequest, FilterRequest, ImagesRequest, InstancesRequest, LaunchTemplatesRequest,
    TagsRequest, page_size,
};
use spokeshave_provider_aws::requests::{
    Filter, FleetRequest, LaunchTemplateRequest, RunInstancesRequest, query,
};

use crate::endpoints::Service;
use crate::error::CallError;
use crate::query::Query;
use crate::session::{Request, Session};
use crate::xml::{self, Element};
use spokeshave_provider_aws::replies::{
    CapacityReservation, FleetReply, Image, Instance, InstanceStatus, LaunchTemplate, SecurityGroup, Subnet,
    Terminated,
};

const VERSION: &str = "2016-11-15";

/// Operating systems whose spot prices count (A4.3).
const PRODUCTS: [&str; 2] = ["Linux/UNIX", "Linux/UNIX (Amazon VPC)"];

/// EC2 in one region.
#[derive(Clone, Debug)]
pub struct Ec2 {
    session: Session,
}

/// Nothing but a way to say so.
#[derive(Serialize)]
struct NoParameters {}

impl Ec2 {
    /// EC2 as the session reaches it.
    #[must_use]
    pub fn new(session: Session) -> Self {
        Ec2 { session }
    }

    fn query(&self, action: &str, parameters: &impl Serialize) -> Result<Query, CallError> {
        let mut query = Query::new(action, VERSION);
        let encoded = query::parameters(parameters).map_err(|error| {
            let request = Request::query(Service::Ec2, &query);
            self.session.unreadable(&request, &error)
        })?;
        query.extend(encoded);
        Ok(query)
    }

    async fn send<T>(&self, query: &Query, read: impl FnOnce(Element<'_, '_>) -> T) -> Result<T, CallError> {
        self.send_request(&Request::query(Service::Ec2, query), read)
            .await
    }

    /// A rehearsal: many of them at once must not take from launches what EC2 allows of calls, each of them again and again (A2.4).
    async fn rehearse<T>(
        &self,
        query: &Query,
        read: impl FnOnce(Element<'_, '_>) -> T,
    ) -> Result<T, CallError> {
        self.send_request(&Request::query(Service::Ec2, query).once(), read)
            .await
    }

    async fn send_request<T>(
        &self,
        request: &Request,
        read: impl FnOnce(Element<'_, '_>) -> T,
    ) -> Result<T, CallError> {
        let body = self.session.call(request).await?;
        let document = Document::parse(&body).map_err(|error| self.session.unreadable(request, &error))?;
        Ok(read(xml::root(&document)))
    }

    /// All pages of a call. `page` is absent where names or IDs are given, with which EC2 allows no page size.
    async fn pages<T>(
        &self,
        action: &str,
        parameters: &impl Serialize,
        page: Option<u32>,
        mut read: impl FnMut(Element<'_, '_>) -> Vec<T>,
    ) -> Result<Vec<T>, CallError> {
        let first = self.query(action, parameters)?;
        let mut all = Vec::new();
        let mut token = None;
        loop {
            let mut query = first.clone();
            query
                .set_some("MaxResults", page)
                .set_some("NextToken", token.take());
            let (found, next) = self
                .send(&query, |root| (read(root), root.some_text("nextToken")))
                .await?;
            all.extend(found);
            token = next;
            if token.is_none() {
                return Ok(all);
            }
        }
    }

    /// `DescribeInstanceTypes`: all that the filters match.
    ///
    /// # Errors
    ///
    /// Denied calls, or no answer; so for every call below.
    pub async fn instance_types(&self, filters: &[Filter]) -> Result<Vec<InstanceTypeInfo>, CallError> {
        let request = FilterRequest {
            filters: filters.to_vec(),
        };
        self.pages(
            "DescribeInstanceTypes",
            &request,
            Some(page_size::INSTANCE_TYPES),
            |root| root.items("instanceTypeSet").map(types::instance_type).collect(),
        )
        .await
    }

    /// `DescribeInstanceTypeOfferings` by zone: pairs of type and zone.
    #[allow(clippy::missing_errors_doc, reason = "as above")]
    pub async fn instance_type_offerings(&self) -> Result<Vec<(String, String)>, CallError> {
        #[derive(Serialize)]
        #[serde(rename_all = "PascalCase")]
        struct ByZone {
            location_type: &'static str,
        }
        let request = ByZone {
            location_type: "availability-zone",
        };
        let page = Some(page_size::INSTANCE_TYPE_OFFERINGS);
        self.pages("DescribeInstanceTypeOfferings", &request, page, |root| {
            let items = root.items("instanceTypeOfferingSet");
            items
                .map(|item| (item.text("instanceType"), item.text("location")))
                .collect()
        })
        .await
    }

    /// `DescribeSpotPriceHistory`: the prices at a time.
    #[allow(clippy::missing_errors_doc, reason = "as above")]
    pub async fn spot_prices(&self, start: jiff::Timestamp) -> Result<Vec<SpotPrice>, CallError> {
        #[derive(Serialize)]
        #[serde(rename_all = "PascalCase")]
        struct Since {
            product_description: [&'static str; 2],
            start_time: String,
        }
        let request = Since {
            product_description: PRODUCTS,
            start_time: start.to_string(),
        };
        self.pages(
            "DescribeSpotPriceHistory",
            &request,
            Some(page_size::SPOT_PRICES),
            |root| {
                root.items("spotPriceHistorySet")
                    .filter_map(decode::spot_price)
                    .collect()
            },
        )
        .await
    }

    /// `DescribeSubnets`.
    #[allow(clippy::missing_errors_doc, reason = "as above")]
    pub async fn subnets(&self, request: &FilterRequest) -> Result<Vec<Subnet>, CallError> {
        self.pages("DescribeSubnets", request, Some(page_size::SUBNETS), |root| {
            root.items("subnetSet").map(decode::subnet).collect()
        })
        .await
    }

    /// `DescribeSecurityGroups`.
    #[allow(clippy::missing_errors_doc, reason = "as above")]
    pub async fn security_groups(&self, request: &FilterRequest) -> Result<Vec<SecurityGroup>, CallError> {
        self.pages(
            "DescribeSecurityGroups",
            request,
            Some(page_size::SECURITY_GROUPS),
            |root| {
                root.items("securityGroupInfo")
                    .map(decode::security_group)
                    .collect()
            },
        )
        .await
    }

    /// `DescribeImages`.
    #[allow(clippy::missing_errors_doc, reason = "as above")]
    pub async fn images(&self, request: &ImagesRequest) -> Result<Vec<Image>, CallError> {
        self.pages("DescribeImages", request, Some(page_size::IMAGES), |root| {
            root.items("imagesSet").map(decode::image).collect()
        })
        .await
    }

    /// `DescribeCapacityReservations`.
    #[allow(clippy::missing_errors_doc, reason = "as above")]
    pub async fn capacity_reservations(
        &self,
        request: &CapacityReservationsRequest,
    ) -> Result<Vec<CapacityReservation>, CallError> {
        self.pages("DescribeCapacityReservations", request, None, |root| {
            root.items("capacityReservationSet")
                .map(decode::capacity_reservation)
                .collect()
        })
        .await
    }

    /// `CreateLaunchTemplate`.
    #[allow(clippy::missing_errors_doc, reason = "as above")]
    pub async fn create_launch_template(
        &self,
        request: &LaunchTemplateRequest,
    ) -> Result<LaunchTemplate, CallError> {
        let mut query = self.query("CreateLaunchTemplate", request)?;
        query.set("ClientToken", self.session.client_token());
        self.send(&query, |root| {
            root.child("launchTemplate")
                .map(decode::launch_template)
                .unwrap_or_default()
        })
        .await
    }

    /// `DescribeLaunchTemplates`.
    #[allow(clippy::missing_errors_doc, reason = "as above")]
    pub async fn launch_templates(
        &self,
        request: &LaunchTemplatesRequest,
    ) -> Result<Vec<LaunchTemplate>, CallError> {
        let page = request
            .launch_template_names
            .is_empty()
            .then_some(page_size::LAUNCH_TEMPLATES);
        self.pages("DescribeLaunchTemplates", request, page, |root| {
            root.items("launchTemplates")
                .map(decode::launch_template)
                .collect()
        })
        .await
    }

    /// `DeleteLaunchTemplate`, by ID.
    #[allow(clippy::missing_errors_doc, reason = "as above")]
    pub async fn delete_launch_template(&self, id: &str) -> Result<(), CallError> {
        let mut query = self.query("DeleteLaunchTemplate", &NoParameters {})?;
        query.set("LaunchTemplateId", id);
        self.send(&query, |_| ()).await
    }

    /// `CreateFleet`. Attempts of one call have one client token, so that a reply that was lost launches nothing twice.
    #[allow(clippy::missing_errors_doc, reason = "as above")]
    pub async fn create_fleet(&self, request: &FleetRequest) -> Result<FleetReply, CallError> {
        let mut query = self.query("CreateFleet", request)?;
        if request.client_token.is_none() {
            query.set("ClientToken", self.session.client_token());
        }
        if request.dry_run {
            return self.rehearse(&query, decode::fleet).await;
        }
        self.send(&query, decode::fleet).await
    }

    /// `RunInstances` as a rehearsal; it succeeds with the error `DryRunOperation`.
    #[allow(clippy::missing_errors_doc, reason = "as above")]
    pub async fn rehearse_run_instances(&self, request: &RunInstancesRequest) -> Result<(), CallError> {
        let mut query = self.query("RunInstances", request)?;
        if !request.dry_run {
            query.set("DryRun", true);
        }
        self.rehearse(&query, |_| ()).await
    }

    /// `DescribeInstances`.
    #[allow(clippy::missing_errors_doc, reason = "as above")]
    pub async fn instances(&self, request: &InstancesRequest) -> Result<Vec<Instance>, CallError> {
        let page = request.instance_ids.is_empty().then_some(page_size::INSTANCES);
        self.pages("DescribeInstances", request, page, decode::instances)
            .await
    }

    /// `TerminateInstances`: what became of each. One unknown ID fails the whole call.
    #[allow(clippy::missing_errors_doc, reason = "as above")]
    pub async fn terminate_instances(&self, ids: &[String]) -> Result<Vec<Terminated>, CallError> {
        let mut query = self.query("TerminateInstances", &NoParameters {})?;
        for (index, id) in ids.iter().enumerate() {
            query.set(&format!("InstanceId.{}", index + 1), id);
        }
        self.send(&query, |root| {
            root.items("instancesSet").map(decode::terminated).collect()
        })
        .await
    }

    /// `CreateTags`.
    #[allow(clippy::missing_errors_doc, reason = "as above")]
    pub async fn create_tags(&self, request: &TagsRequest) -> Result<(), CallError> {
        let query = self.query("CreateTags", request)?;
        self.send(&query, |_| ()).await
    }

    /// `DescribeInstanceStatus`.
    #[allow(clippy::missing_errors_doc, reason = "as above")]
    pub async fn instance_statuses(&self, filters: &[Filter]) -> Result<Vec<InstanceStatus>, CallError> {
        let request = FilterRequest {
            filters: filters.to_vec(),
        };
        self.pages(
            "DescribeInstanceStatus",
            &request,
            Some(page_size::INSTANCES),
            |root| {
                root.items("instanceStatusSet")
                    .map(decode::instance_status)
                    .collect()
            },
        )
        .await
    }
}
