//! What an error of an AWS call means (A5.6): the class that decides what happens next, and the reason that a NodeClaim's condition shows.

use std::fmt;

/// An error of a call, or one error in the reply of a fleet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApiError {
    /// Code, such as `InsufficientInstanceCapacity`.
    pub code: String,
    /// Message.
    pub message: String,
    /// Whether the service says that the fault is its own.
    pub server_fault: bool,
}

impl ApiError {
    /// An error of the caller's making.
    #[must_use]
    pub fn new(code: &str, message: &str) -> Self {
        ApiError {
            code: code.to_owned(),
            message: message.to_owned(),
            server_fault: false,
        }
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code.as_str() {
            // There was no answer.
            "" => f.write_str(&self.message),
            code => write!(f, "{code}: {}", self.message),
        }
    }
}

impl std::error::Error for ApiError {}

const NOT_FOUND: [&str; 9] = [
    "AWS.SimpleQueueService.NonExistentQueue",
    "InvalidCapacityReservationId.NotFound",
    "InvalidInstanceID.NotFound",
    "InvalidLaunchTemplateId.NotFound",
    LAUNCH_TEMPLATE_NAME_NOT_FOUND,
    "NoSuchEntity",
    "ParameterNotFound",
    "QueueDoesNotExist",
    // The queue's code in the JSON protocol of SQS.
    "com.amazonaws.sqs#QueueDoesNotExist",
];

/// Codes of services that do not know the caller.
const UNAUTHENTICATED: [&str; 8] = [
    "AuthFailure",
    "ExpiredToken",
    "ExpiredTokenException",
    "IncompleteSignature",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
];

/// Policies beside those that allow the role something, as AWS names them in its messages, and as users know them.
const REFUSING_POLICIES: [(&str, &str); 5] = [
    (
        "service control policy",
        "a service control policy of the organization",
    ),
    (
        "resource control policy",
        "a resource control policy of the organization",
    ),
    ("permissions boundary", "the permissions boundary"),
    ("session policy", "the session policy"),
    ("VPC endpoint policy", "the policy of the VPC endpoint"),
];

/// What EC2 puts before a text that differs each time, and that only `aws sts decode-authorization-message` can read.
const ENCODED: &str = "Encoded authorization failure message: ";

/// A text of errors without what differs with each attempt: IDs of requests and encoded messages. With them each attempt would be an event of its own.
#[must_use]
pub fn steady(text: &str) -> String {
    let mut parts = text.split(" (request ");
    let mut without_ids = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        without_ids.push_str(part.split_once(')').map_or("", |(_, rest)| rest));
    }
    let mut parts = without_ids.split(ENCODED);
    let mut steady = parts.next().unwrap_or_default().trim_end().to_owned();
    for part in parts {
        let end = part.find([' ', ';', '\n']).unwrap_or(part.len());
        steady.push_str(&part[end..]);
    }
    steady
}

const LAUNCH_TEMPLATE_NAME_NOT_FOUND: &str = "InvalidLaunchTemplateName.NotFoundException";

/// Codes of a fleet's reply that say that this offering has no capacity now.
const NO_CAPACITY: [&str; 8] = [
    "InsufficientFreeAddressesInSubnet",
    "InsufficientInstanceCapacity",
    "MaxFleetCountExceeded",
    "MaxSpotInstanceCountExceeded",
    RESERVATION_CAPACITY_EXCEEDED,
    "UnfulfillableCapacity",
    "Unsupported",
    "VcpuLimitExceeded",
];

const RESERVATION_CAPACITY_EXCEEDED: &str = "ReservationCapacityExceeded";

/// Classes of an error that a call returned.
impl ApiError {
    /// What was asked for does not exist (any more).
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        NOT_FOUND.contains(&self.code.as_str())
    }

    /// A launch template that was named does not exist: it is forgotten, and made again.
    #[must_use]
    pub fn is_launch_template_not_found(&self) -> bool {
        self.code == LAUNCH_TEMPLATE_NAME_NOT_FOUND
    }

    /// What was to be created exists.
    #[must_use]
    pub fn is_already_exists(&self) -> bool {
        self.code == "EntityAlreadyExists"
    }

    /// The dry run would have succeeded.
    #[must_use]
    pub fn is_dry_run(&self) -> bool {
        self.code == "DryRunOperation"
    }

    /// The caller may not do this.
    #[must_use]
    pub fn is_unauthorized(&self) -> bool {
        matches!(
            self.code.as_str(),
            "UnauthorizedOperation" | "AccessDenied" | "AccessDeniedException"
        )
    }

    /// Nobody knows who the caller is: keys that are wrong or have ended, or none at all.
    #[must_use]
    pub fn is_unauthenticated(&self) -> bool {
        UNAUTHENTICATED.contains(&self.code.as_str())
    }

    /// What the user can do about it, to be put behind the text of a call's error; empty for what passes by itself. `call` is the action as policies name it;
    /// where AWS names another one, which the call needs besides (`iam:PassRole`, `ec2:CreateTags`), that is the one to be allowed.
    #[must_use]
    pub fn advice(&self, call: &str) -> String {
        let denied = self.denied_action();
        if denied.is_none() && self.is_unauthenticated() {
            return "; check the operator's credentials: the role of its service account (IRSA, Pod Identity), or its keys".to_owned();
        }
        if denied.is_none() && !self.is_unauthorized() {
            return String::new();
        }
        let action = denied.unwrap_or(call);
        match self.refusing_policy() {
            Some(policy) => {
                format!("; {policy} denies {action} to the operator's role: have it changed there")
            }
            None => format!(
                "; allow {action} in the policy of the operator's role (deploy/aws/controller-policy.json has all that it needs)"
            ),
        }
    }

    /// The text of this error of a call: the call, what AWS says, and what to do about it.
    #[must_use]
    pub fn told(&self, call: &str) -> String {
        format!("{call}: {self}{}", self.advice(call))
    }

    /// The action that AWS names as denied.
    fn denied_action(&self) -> Option<&str> {
        let (_, rest) = self.message.split_once("not authorized to perform: ")?;
        let action = rest.split([' ', '\n']).next()?.trim_end_matches(['.', ',', ';']);
        action.contains(':').then_some(action)
    }

    /// The policy that AWS names, where it is not one that is attached to the operator's role to allow something.
    fn refusing_policy(&self) -> Option<&'static str> {
        let named = |policy: &str| {
            let texts = [
                format!("explicit deny in a {policy}"),
                format!("because no {policy}"),
            ];
            texts.iter().any(|text| self.message.contains(text))
        };
        let found = REFUSING_POLICIES.iter().find(|(policy, _)| named(policy));
        found.map(|(_, words)| *words).or_else(|| {
            let is_explicit = self.message.contains("explicit deny in an identity-based policy");
            is_explicit.then_some("a policy of its own")
        })
    }

    /// The caller asks too often.
    #[must_use]
    pub fn is_rate_limited(&self) -> bool {
        matches!(
            self.code.as_str(),
            "RequestLimitExceeded" | "Throttling" | "ThrottlingException"
        )
    }

    /// The service failed.
    #[must_use]
    pub fn is_server_error(&self) -> bool {
        self.server_fault
    }

    /// The instance profile of a launch does not exist (yet).
    #[must_use]
    pub fn is_instance_profile_not_found(&self) -> bool {
        self.code == "InvalidParameterValue" && self.message.contains("Invalid IAM Instance Profile name")
    }

    /// User data is over EC2's limit.
    #[must_use]
    pub fn is_user_data_too_large(&self) -> bool {
        self.code == "InvalidUserData.Malformed" && self.message.contains("User data is limited to")
    }
}

/// Classes of an error in the reply of a fleet.
impl ApiError {
    /// This offering has no capacity now; it is left out for three minutes.
    #[must_use]
    pub fn is_unfulfillable_capacity(&self) -> bool {
        NO_CAPACITY.contains(&self.code.as_str())
    }

    /// The subnet has no free addresses; it is left out for three minutes.
    #[must_use]
    pub fn is_insufficient_free_addresses(&self) -> bool {
        self.code == "InsufficientFreeAddressesInSubnet"
    }

    /// The capacity reservation is used up.
    #[must_use]
    pub fn is_reservation_capacity_exceeded(&self) -> bool {
        self.code == RESERVATION_CAPACITY_EXCEEDED
    }

    /// The account has no service-linked role for spot, and the caller may not create it: spot is left out as a whole.
    #[must_use]
    pub fn is_service_linked_role_missing(&self) -> bool {
        self.code == "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
    }

    /// The spread placement group has as many instances in this zone as it may have.
    #[must_use]
    pub fn is_spread_placement_group_full(&self) -> bool {
        self.message
            .contains("limit of instances in this spread placement group")
    }
}

/// Reason and message for condition `Launched` of a NodeClaim whose launch failed with this error.
#[must_use]
pub fn launch_reason(error: &ApiError) -> (&'static str, &'static str) {
    let text = error.to_string();
    let row = REASONS
        .iter()
        .find(|(marks, ..)| marks.iter().all(|mark| text.contains(mark)));
    match row {
        Some((_, reason, message)) => (reason, message),
        None => ("LaunchFailed", "Instance launch failed"),
    }
}

type ReasonRow = (&'static [&'static str], &'static str, &'static str);

const UNAUTHORIZED_BOUNDARY: &str =
    "User is not authorized to perform this operation due to a permission boundary";
const UNAUTHORIZED_POLICY: &str =
    "User is not authorized to perform this operation due to a service control policy";
const UNAUTHORIZED: &str =
    "User is not authorized to perform this operation because no identity-based policy allows it";
const NOT_FOR_IMAGE: &str = "User is not authorized for AMI used in instance launch";

/// What a text must contain, the reason, the message; the first row that matches counts.
const REASONS: &[ReasonRow] = &[
    (
        &["AuthFailure.ServiceLinkedRoleCreationNotPermitted"],
        "SpotSLRCreationFailed",
        "User does not have sufficient permission to create the Spot ServiceLinkedRole to launch spot instances",
    ),
    (
        &[
            "UnauthorizedOperation",
            "with an explicit deny in a permissions boundary",
        ],
        "Unauthorized",
        UNAUTHORIZED_BOUNDARY,
    ),
    (
        &["AccessDenied", "with an explicit deny in a permissions boundary"],
        "Unauthorized",
        UNAUTHORIZED_BOUNDARY,
    ),
    (
        &["AuthFailure", "with an explicit deny in a permissions boundary"],
        "Unauthorized",
        UNAUTHORIZED_BOUNDARY,
    ),
    (
        &[
            "UnauthorizedOperation",
            "with an explicit deny in a service control policy",
        ],
        "Unauthorized",
        UNAUTHORIZED_POLICY,
    ),
    (
        &[
            "AccessDenied",
            "with an explicit deny in a service control policy",
        ],
        "Unauthorized",
        UNAUTHORIZED_POLICY,
    ),
    (
        &["AuthFailure", "with an explicit deny in a service control policy"],
        "Unauthorized",
        UNAUTHORIZED_POLICY,
    ),
    (
        &["UnauthorizedOperation", "Not authorized for images"],
        "AMIAuthorizationFailure",
        NOT_FOR_IMAGE,
    ),
    (
        &["AccessDenied", "Not authorized for images"],
        "AMIAuthorizationFailure",
        NOT_FOR_IMAGE,
    ),
    (
        &["AuthFailure", "Not authorized for images"],
        "AMIAuthorizationFailure",
        NOT_FOR_IMAGE,
    ),
    (&["UnauthorizedOperation"], "Unauthorized", UNAUTHORIZED),
    (&["AccessDenied"], "Unauthorized", UNAUTHORIZED),
    (&["AuthFailure"], "Unauthorized", UNAUTHORIZED),
    (
        &["InvalidParameter", "belong to different networks"],
        "SecurityGroupSubnetVPCMismatch",
        "Security groups and subnets must be in the same VPC.",
    ),
    (
        &["iamInstanceProfile.name is invalid"],
        "InstanceProfileNameInvalid",
        "Instance profile name used from EC2NodeClass status does not exist",
    ),
    (
        &["InvalidLaunchTemplateId.NotFound"],
        "LaunchTemplateNotFound",
        "Launch template used for instance launch wasn't found",
    ),
    (
        &["User data is limited to"],
        "UserDataSizeLimitExceeded",
        "Rendered user data exceeds the EC2 user data size limit",
    ),
    (
        &["InvalidAMIID.Malformed"],
        "InvalidAMIID",
        "AMI used for instance launch is invalid",
    ),
    (
        &["InvalidAMIID.NotFound"],
        "AMINotFound",
        "AMI used for instance launch either does not exist or you don't have permissions to use it",
    ),
    (
        &["RequestLimitExceeded"],
        "RequestLimitExceeded",
        "Request limit exceeded",
    ),
    (
        &["InternalError"],
        "InternalError",
        "An internal error has occurred",
    ),
    (
        &["not eligible for Free Tier"],
        "FreeTierIneligible",
        "The specified instance type is not eligible for Free Tier",
    ),
    (
        &["MaxFleetCountExceeded"],
        "FleetQuotaExceeded",
        "A fleet launch was requested but this would exceed your fleet request quota",
    ),
    (
        &["PendingVerification"],
        "AccountPendingVerification",
        "An instance launch was requested but the request for launching resources in this region is still being verified",
    ),
    (
        &["MaxSpotInstanceCountExceeded"],
        "SpotQuotaExceeded",
        "A spot instance launch was requested but this would exceed your spot instance quota",
    ),
    (
        &["VcpuLimitExceeded"],
        "VCPULimitExceeded",
        "An instance was requested that would exceed your VCPU quota",
    ),
    (
        &["InsufficientFreeAddressesInSubnet"],
        "InsufficientFreeAddressesInSubnet",
        "There are not enough free IP addresses to launch an instance in this subnet",
    ),
];
