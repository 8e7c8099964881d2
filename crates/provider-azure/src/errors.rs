//! What an error of ARM means (Z6.5): what is left out for how long, and what the NodeClaim's condition shows.

use jiff::SignedDuration;
use serde::Deserialize;
use spokeshave_model::{CapacityType, InstanceType, Offering};

use crate::names::REGIONAL;
use crate::unavailable::{Mark, Reach};

const HOUR: SignedDuration = SignedDuration::from_hours(1);
/// Quota is left, only not enough for this size.
const LITTLE_QUOTA: SignedDuration = SignedDuration::from_mins(10);
/// A size that is not sold here will not be tomorrow.
const NOT_SOLD: SignedDuration = SignedDuration::from_hours(23);

/// Code of the failure of a machine where AKS gives none.
pub const PROVISIONING_FAILED: &str = "ProvisioningFailed";

/// An error of a call, or of a long-running operation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArmError {
    /// HTTP status of the reply; 0 for that of an operation, and where there was no reply.
    pub status: u16,
    /// Code, such as `AllocationFailed`.
    pub code: String,
    /// Message.
    pub message: String,
    /// When to ask again, if ARM says so.
    pub retry_after: Option<SignedDuration>,
}

impl std::fmt::Display for ArmError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.status, self.code.as_str()) {
            (0, "") => write!(f, "{}", self.message),
            (0, code) => write!(f, "{code}: {}", self.message),
            (status, "") => write!(f, "HTTP {status}: {}", self.message),
            (status, code) => write!(f, "HTTP {status}, {code}: {}", self.message),
        }
    }
}

impl std::error::Error for ArmError {}

#[derive(Deserialize)]
struct Envelope {
    error: Body,
}

#[derive(Deserialize)]
struct Body {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
    // AKS writes null where there are none.
    #[serde(default)]
    details: Option<Vec<Body>>,
}

/// Codes that only say that something else has gone wrong.
const WRAPPERS: [&str; 3] = [
    "DeploymentFailed",
    "ResourceDeploymentFailure",
    "MultipleErrorsOccurred",
];

impl ArmError {
    /// An error without a reply's status.
    #[must_use]
    pub fn new(code: &str, message: &str) -> Self {
        ArmError {
            code: code.to_owned(),
            message: message.to_owned(),
            ..ArmError::default()
        }
    }

    /// Reads the body of a reply, or the `error` of an operation inside its body. AKS also answers with code and message and no `error` around them. A code
    /// that only wraps another gives way to it.
    #[must_use]
    pub fn read(status: u16, body: &[u8]) -> Self {
        let enveloped = serde_json::from_slice::<Envelope>(body).map(|envelope| envelope.error);
        let bare = || {
            serde_json::from_slice::<Body>(body)
                .ok()
                .filter(|bare| !bare.code.is_empty())
        };
        let mut error = enveloped.ok().or_else(bare).unwrap_or_else(|| Body {
            code: String::new(),
            message: String::from_utf8_lossy(&body[..body.len().min(300)]).into_owned(),
            details: None,
        });
        while WRAPPERS.contains(&error.code.as_str())
            && let Some(inner) = error.details.take().into_iter().flatten().next()
        {
            error = inner;
        }
        ArmError {
            status,
            code: error.code,
            message: error.message,
            retry_after: None,
        }
    }

    /// Reads why AKS could not make a machine. It wraps what Compute has said.
    #[must_use]
    pub fn of_machine(provisioning_error: &serde_json::Value) -> Self {
        let inner = &provisioning_error["details"][0];
        let said = |key: &str| {
            let texts = [inner, provisioning_error].map(|error| error[key].as_str().unwrap_or_default());
            texts.into_iter().find(|text| !text.is_empty())
        };
        // An error without a code would be taken for a reply that never came.
        let code = said("code").unwrap_or(PROVISIONING_FAILED);
        let message = said("message").unwrap_or("AKS says that the machine has failed, and not why");
        ArmError::new(code, message)
    }

    /// What was asked for does not exist (any more).
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        // Where a whole subscription or resource group is not found, settings name the wrong one: that says nothing about what is in it.
        let is_elsewhere = matches!(
            self.code.as_str(),
            "SubscriptionNotFound" | "ResourceGroupNotFound"
        );
        (self.status == 404 && !is_elsewhere) || matches!(self.code.as_str(), "ResourceNotFound" | "NotFound")
    }

    /// How AKS says that none of the machines that it is to delete exists.
    #[must_use]
    pub fn is_no_machine(&self) -> bool {
        self.is_not_found()
            || (self.status == 400
                && self.code == "InvalidParameter"
                && self.message.contains("Cannot find any valid machines"))
    }

    /// The caller may not do this; to ask again does not help.
    #[must_use]
    pub fn is_unauthorized(&self) -> bool {
        matches!(self.status, 401 | 403)
    }

    /// The caller asks too often.
    #[must_use]
    pub fn is_throttled(&self) -> bool {
        !self.is_busy() && (self.status == 429 || self.code == "TooManyRequests")
    }

    /// What the call is about, or what it needs, is being changed or deleted by another; it can be asked again when that is over. The network provider says
    /// so with status 429, which is no throttling.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(
            self.code.as_str(),
            "AnotherOperationInProgress"
                | "ReferencedResourceNotProvisioned"
                | "RetryableError"
                | "RetryableErrorDueToAnotherOperation"
        )
    }

    /// A network interface is kept for a machine that is gone, for 180 s.
    #[must_use]
    pub fn is_interface_reserved(&self) -> bool {
        self.code == "NicReservedForAnotherVm"
    }

    /// The subscription may not have machines of this size in the location at all: how the AKS machine API says so (Z6.5).
    fn is_not_sold_to_subscription(&self) -> bool {
        self.code == "VMSizeNotSupported"
            || (self.code == "BadRequest" && self.message.contains("is not supported for subscription"))
    }

    fn is_quota(&self, text: &str) -> bool {
        self.code == "OperationNotAllowed" && self.message.contains(text)
    }
}

/// What a failed launch has tried.
#[derive(Debug, Clone, Copy)]
pub struct Attempt<'a> {
    /// The type.
    pub instance_type: &'a InstanceType,
    /// Its family, by which quota is counted.
    pub family: &'a str,
    /// Its vCPUs.
    pub cpus: i64,
    /// Label value of the zone.
    pub zone: &'a str,
    /// How it was to be bought.
    pub capacity_type: CapacityType,
}

/// What becomes of a NodeClaim whose launch has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// No other size would do: it is given up.
    InsufficientCapacity(String),
    /// The condition says why, and another offering is tried.
    Failed {
        /// Reason of the condition.
        reason: &'static str,
        /// Message of the condition.
        message: String,
    },
}

/// What follows from an error of a launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What is left out.
    pub marks: Vec<Mark>,
    /// What becomes of the NodeClaim.
    pub verdict: Verdict,
}

impl Attempt<'_> {
    fn marks(&self, zones: Vec<String>, capacity_types: &[CapacityType], lasts: SignedDuration) -> Vec<Mark> {
        vec![Mark {
            reach: Reach::Family {
                family: self.family.to_owned(),
                size: self.instance_type.name.clone(),
                cpus: self.cpus,
                zones,
                capacity_types: capacity_types.to_vec(),
            },
            lasts,
        }]
    }

    /// Zones of all its offerings, and that of the attempt.
    fn everywhere(&self) -> Vec<String> {
        self.zones(|_| true)
    }

    fn zones(&self, keep: impl Fn(&str) -> bool) -> Vec<String> {
        let mut zones: Vec<String> = self
            .instance_type
            .offerings
            .iter()
            .filter_map(Offering::zone)
            .chain([self.zone])
            .filter(|zone| keep(zone))
            .map(str::to_owned)
            .collect();
        zones.sort();
        zones.dedup();
        zones
    }

    /// Zones of the same scope: all of those with a number, or none at all.
    fn scope(&self) -> Vec<String> {
        self.zones(|zone| (zone == REGIONAL) == (self.zone == REGIONAL))
    }
}

const BOTH: [CapacityType; 2] = [CapacityType::OnDemand, CapacityType::Spot];

/// What an error of a launch says about capacity; `None` when it says nothing about it.
#[must_use]
pub fn launch_failure(error: &ArmError, attempt: &Attempt<'_>) -> Option<Failure> {
    let same = [attempt.capacity_type];
    let size = &attempt.instance_type.name;
    let (capacity_type, zone) = (attempt.capacity_type.as_str(), attempt.zone);
    let failed = |marks: Vec<Mark>, reason: &'static str, message: String| {
        Some(Failure {
            marks,
            verdict: Verdict::Failed { reason, message },
        })
    };
    if error.is_quota("LowPriorityCores") {
        let mark = Mark {
            reach: Reach::AllSpot,
            lasts: HOUR,
        };
        let message =
            "the subscription's regional quota of spot vCPUs is used up; ask for more, or allow on-demand"
                .to_owned();
        return failed(vec![mark], "SubscriptionQuotaReached", message);
    }
    if error.is_quota("Family Cores quota") {
        let none_at_all = error.message.contains("Current Limit: 0");
        let lasts = if none_at_all { HOUR } else { LITTLE_QUOTA };
        let marks = attempt.marks(attempt.everywhere(), &same, lasts);
        let message = format!(
            "the subscription's {capacity_type} quota of vCPUs for {size} is used up; other sizes are tried"
        );
        return failed(marks, "SubscriptionQuotaReached", message);
    }
    if error.is_quota("exceeding approved Total Regional Cores quota") {
        let message = format!(
            "the subscription's regional quota of {capacity_type} vCPUs is used up, which no other size mends"
        );
        return Some(Failure {
            marks: Vec::new(),
            verdict: Verdict::InsufficientCapacity(message),
        });
    }
    if error.is_quota("Submit a request for Quota increase") {
        let marks = attempt.marks(attempt.everywhere(), &same, HOUR);
        let message = format!("a quota of the subscription is used up: {}", error.message);
        return failed(marks, "SubscriptionQuotaReached", message);
    }
    if error.is_not_sold_to_subscription() {
        let message = format!("{size} is not sold to this subscription in this location");
        let marks = attempt.marks(attempt.everywhere(), &BOTH, NOT_SOLD);
        return failed(marks, "SKUNotAvailable", message);
    }
    match error.code.as_str() {
        "SkuNotAvailable" => {
            let lasts = if attempt.capacity_type == CapacityType::Spot {
                HOUR
            } else {
                NOT_SOLD
            };
            let message = format!("{size} is not sold as {capacity_type} in zone {zone}");
            failed(
                attempt.marks(attempt.scope(), &same, lasts),
                "SKUNotAvailable",
                message,
            )
        }
        "ZonalAllocationFailed" => {
            let message = format!("zone {zone} has no capacity for {size}; other zones are tried");
            let marks = attempt.marks(vec![zone.to_owned()], &BOTH, HOUR);
            failed(marks, "ZonalAllocationFailure", message)
        }
        "AllocationFailed" => {
            let message = format!("the region has no capacity for {size}; other sizes are tried");
            failed(
                attempt.marks(attempt.scope(), &BOTH, HOUR),
                "AllocationFailure",
                message,
            )
        }
        "OverconstrainedZonalAllocationRequest" => {
            let message = format!("zone {zone} has no {capacity_type} capacity for {size}");
            let marks = attempt.marks(vec![zone.to_owned()], &same, HOUR);
            failed(marks, "OverconstrainedZonalAllocationFailure", message)
        }
        "OverconstrainedAllocationRequest" => {
            let message = format!("no zone has {capacity_type} capacity for {size}");
            let marks = attempt.marks(attempt.scope(), &same, HOUR);
            failed(marks, "OverconstrainedAllocationFailure", message)
        }
        "InsufficientSubnetSize" | "SubnetIsFull" => {
            let message = format!("the subnet has no free addresses: {}", error.message);
            failed(Vec::new(), "InsufficientSubnetSize", message)
        }
        _ => None,
    }
}
