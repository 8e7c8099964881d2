//! Label, annotation and tag keys of the kwok cloud (P §1.7).

/// AWS-style size suffix of the instance type's name, otherwise its CPU quantity.
pub const INSTANCE_SIZE: &str = "karpenter.kwok.sh/instance-size";
/// Family of the instance type.
pub const INSTANCE_FAMILY: &str = "karpenter.kwok.sh/instance-family";
/// CPU quantity of the instance type.
pub const INSTANCE_CPU: &str = "karpenter.kwok.sh/instance-cpu";
/// Memory quantity of the instance type.
pub const INSTANCE_MEMORY: &str = "karpenter.kwok.sh/instance-memory";
/// The reservation behind a reserved offering.
pub const RESERVATION_ID: &str = "karpenter.kwok.sh/reservation-id";
/// `fake` as label and annotation: marks a Node without a machine; kwok's own controller manages such nodes.
pub const NODE: &str = "kwok.x-k8s.io/node";
/// Value of [`NODE`].
pub const NODE_FAKE: &str = "fake";
/// Price per hour, read by eks-node-viewer.
pub const INSTANCE_PRICE: &str = "eks-node-viewer/instance-price";
/// Shard of kwok controllers.
pub const PARTITION: &str = "kwok-partition";
/// Annotation of a Node: name of the KWOKInstance that it runs on.
pub const INSTANCE: &str = "kwok.spokeshave.dev/instance";
/// Annotation of a KWOKInstance: a message of the cloud about it, such as `spot_interrupted`; the operator removes it.
pub const MESSAGE: &str = "kwok.spokeshave.dev/message";
/// Annotation of a KWOKInstance: when the cloud will terminate it in any case.
pub const ENDS_AT: &str = "kwok.spokeshave.dev/ends-at";
/// Tag of an instance: NodeClaim that it was launched for.
pub const TAG_NODE_CLAIM: &str = "karpenter.sh/nodeclaim";
/// Prefix of the tag whose rest is the name of the cluster, with value `owned`.
pub const TAG_CLUSTER_PREFIX: &str = "kubernetes.io/cluster/";
/// Beginning of every provider ID of this cloud.
pub const PROVIDER_ID_PREFIX: &str = "kwok://";
/// The domain that users may not use in labels, beyond the core's.
pub const RESTRICTED_DOMAIN: &str = "karpenter.kwok.sh";
/// The labels of instance types that users may select by.
pub const WELL_KNOWN: [&str; 4] = [INSTANCE_SIZE, INSTANCE_FAMILY, INSTANCE_CPU, INSTANCE_MEMORY];
