//! The definition of EC2NodeClass (A1.1 to A1.3).
//!
//! Accepts exactly what upstream accepts, including quirks: the rules on selector terms of subnets, groups and reservations reject a list only when
//! *every* term breaks them, and sizes of volumes are read by upstream's pattern. The kubelet block is checked by the controller (A1.4).

use serde_json::{Value, json};

use super::shared::{self, rule};
use super::{Definition, column, wide_column};
use crate::EC2NodeClass;

/// Whole GiB, GB, TiB or TB, within EBS's bounds; with upstream's empty branch (A1.3, quirk 2).
const VOLUME_SIZE_PATTERN: &str = "^((?:[1-9][0-9]{0,3}|[1-4][0-9]{4}|[5][0-8][0-9]{3}|59000)Gi|(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|[6][0-3][0-9]{3}|64000)G|([1-9]||[1-5][0-7]|58)Ti|([1-9]||[1-5][0-9]|6[0-3]|64)T)$";

/// Aliases with the family of each, and its name in messages.
const ALIASES: [(&str, &str, &str); 6] = [
    ("al2", "AL2", "an AL2"),
    ("al2023", "AL2023", "an AL2023"),
    ("bottlerocket", "Bottlerocket", "a Bottlerocket"),
    ("windows2019", "Windows2019", "a Windows2019"),
    ("windows2022", "Windows2022", "a Windows2022"),
    ("windows2025", "Windows2025", "a Windows2025"),
];

pub(super) fn crd() -> Value {
    Definition {
        group: EC2NodeClass::GROUP,
        version: EC2NodeClass::VERSION,
        kind: EC2NodeClass::KIND,
        plural: EC2NodeClass::PLURAL,
        namespaced: false,
        categories: &["karpenter"],
        short_names: &["ec2nc", "ec2ncs"],
        columns: vec![
            column(
                "Ready",
                "string",
                ".status.conditions[?(@.type==\"Ready\")].status",
            ),
            column("Age", "date", ".metadata.creationTimestamp"),
            wide_column("Role", "string", ".spec.role"),
        ],
        scale: None,
        schema: shared::object_without_required_spec("How EC2 instances are launched.", &spec(), &status()),
    }
    .build()
}

fn text(description: &str) -> Value {
    json!({"description": description, "type": "string"})
}

fn text_like(description: &str, pattern: &str) -> Value {
    json!({"description": description, "type": "string", "pattern": pattern})
}

fn one_of(description: &str, values: &[&str]) -> Value {
    json!({"description": description, "type": "string", "enum": values})
}

fn flag(description: &str) -> Value {
    json!({"description": description, "type": "boolean"})
}

fn count(description: &str, format: &str, minimum: Option<i64>, maximum: Option<i64>) -> Value {
    let mut schema = json!({"description": description, "type": "integer", "format": format});
    if let Some(minimum) = minimum {
        schema["minimum"] = json!(minimum);
    }
    if let Some(maximum) = maximum {
        schema["maximum"] = json!(maximum);
    }
    schema
}

fn list(description: &str, items: &Value, rules: &[Value], sizes: &Value) -> Value {
    let mut schema = json!({"description": description, "type": "array", "items": items});
    if !rules.is_empty() {
        schema["x-kubernetes-validations"] = json!(rules);
    }
    for (key, value) in sizes.as_object().into_iter().flatten() {
        schema[key] = value.clone();
    }
    schema
}

fn object(description: &str, properties: &Value, rules: &[Value]) -> Value {
    let mut schema = json!({"description": description, "type": "object", "properties": properties});
    if !rules.is_empty() {
        schema["x-kubernetes-validations"] = json!(rules);
    }
    schema
}

fn not_empty(description: &str, field: &str) -> Value {
    let mut schema = text(description);
    schema["x-kubernetes-validations"] = json!([rule("self != ''", &format!("{field} cannot be empty"))]);
    schema
}

/// Tags of a selector term.
fn selected_tags() -> Value {
    json!({
        "description": "Tags, all of which must match. The value * matches any value.",
        "type": "object",
        "maxProperties": 20,
        "additionalProperties": {"type": "string"},
        "x-kubernetes-validations": [rule(
            "self.all(key, key != '' && self[key] != '')",
            "empty tag keys or values aren't supported",
        )],
    })
}

fn spec() -> Value {
    let mut properties = json!({
        "subnetSelectorTerms": subnets(),
        "securityGroupSelectorTerms": security_groups(),
        "capacityReservationSelectorTerms": capacity_reservations(),
        "placementGroupSelector": placement_group(),
        "amiSelectorTerms": images(),
        "amiFamily": one_of(
            "Family of the images, which decides their user data. By default that of the alias.",
            &["AL2", "AL2023", "Bottlerocket", "Custom", "Windows2019", "Windows2022", "Windows2025"],
        ),
        "role": not_empty("IAM role of the instances, for which an instance profile is created.", "role"),
        "instanceProfile": not_empty("Name of an existing instance profile.", "instanceProfile"),
        "userData": text("User data, merged with what the AMI family needs."),
        "associatePublicIPAddress": flag("Whether the primary interface gets a public address. Unset leaves it to the subnet."),
        "ipPrefixCount": count("How many prefixes of addresses the primary interface is given.", "int32", Some(0), None),
        "tags": tags(),
        "kubelet": {
            "description": "Configuration of the kubelet, as in KubeletConfiguration. The controller checks it and reports problems in condition ValidationSucceeded.",
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": true,
        },
        "blockDeviceMappings": block_device_mappings(),
        "instanceStorePolicy": one_of("Use of the instance store disks: RAID0 combines them into one array for pods.", &["RAID0"]),
    });
    let more = json!({
        "networkInterfaces": network_interfaces(),
        "detailedMonitoring": flag("Whether metrics of the instances are reported every minute."),
        "metadataOptions": metadata_options(),
        "connectionTracking": connection_tracking(),
        "cpuOptions": object("Options of the processors.", &json!({
            "nestedVirtualization": one_of("Whether instances support nested virtualization.", &["enabled", "disabled"]),
        }), &[]),
        "context": text("Passed on as the Context of CreateFleet."),
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        properties[key] = value.clone();
    }
    let mut spec = object("Configuration of the instances.", &properties, &spec_rules());
    spec["required"] = json!([
        "amiSelectorTerms",
        "securityGroupSelectorTerms",
        "subnetSelectorTerms"
    ]);
    spec
}

fn spec_rules() -> Vec<Value> {
    let mut rules = vec![rule(
        "has(self.role) != has(self.instanceProfile)",
        "must specify exactly one of ['role', 'instanceProfile']",
    )];
    for (alias, family, article) in ALIASES {
        let is_alias = format!(
            "self.amiSelectorTerms.exists(term, has(term.alias) && term.alias.find('^[^@]+') == '{alias}')"
        );
        rules.push(rule(
            &format!("!has(self.amiFamily) || self.amiFamily in ['Custom', '{family}'] || !{is_alias}"),
            &format!("if set, amiFamily must be '{family}' or 'Custom' when using {article} alias"),
        ));
    }
    rules.push(rule(
        "has(self.amiFamily) || self.amiSelectorTerms.exists(term, has(term.alias))",
        "must specify amiFamily if amiSelectorTerms does not contain an alias",
    ));
    rules
}

/// The rule that a field of a selector term excludes the others; like upstream's it fires only when every term violates it (A1.3, quirk 1).
fn alone_in_some_term(field: &str, others: &[&str], place: &str) -> Value {
    let others: Vec<String> = others.iter().map(|other| format!("has(term.{other})")).collect();
    rule(
        &format!("!self.all(term, has(term.{field}) && ({}))", others.join(" || ")),
        &format!("'{field}' is mutually exclusive, cannot be set {place}"),
    )
}

fn any_of(fields: &[&str]) -> Value {
    let tests: Vec<String> = fields.iter().map(|field| format!("has(term.{field})")).collect();
    let names: Vec<String> = fields.iter().map(|field| format!("'{field}'")).collect();
    rule(
        &format!("self.all(term, {})", tests.join(" || ")),
        &format!("expected at least one, got none, [{}]", names.join(", ")),
    )
}

fn subnets() -> Value {
    let term = object(
        "Chooses subnets: by ID, or by all of its tags.",
        &json!({
            "tags": selected_tags(),
            "id": text_like("ID of the subnet. With an ID, tags are ignored.", "subnet-[0-9a-z]+"),
        }),
        &[],
    );
    list(
        "Subnets of the instances: those that any of these terms chooses.",
        &term,
        &[
            rule("self.size() != 0", "subnetSelectorTerms cannot be empty"),
            any_of(&["tags", "id"]),
            alone_in_some_term(
                "id",
                &["tags"],
                "with a combination of other fields in a subnet selector term",
            ),
        ],
        &json!({"maxItems": 30}),
    )
}

fn security_groups() -> Value {
    let term = object(
        "Chooses security groups: by ID, by name, or by all of its tags.",
        &json!({
            "tags": selected_tags(),
            "id": text_like("ID of the group.", "sg-[0-9a-z]+"),
            "name": text("Name of the group; this is not its Name tag."),
        }),
        &[],
    );
    let place = "with a combination of other fields in a security group selector term";
    list(
        "Security groups of the instances: those that any of these terms chooses.",
        &term,
        &[
            rule("self.size() != 0", "securityGroupSelectorTerms cannot be empty"),
            any_of(&["tags", "id", "name"]),
            alone_in_some_term("id", &["tags", "name"], place),
            alone_in_some_term("name", &["tags", "id"], place),
        ],
        &json!({"maxItems": 30}),
    )
}

fn capacity_reservations() -> Value {
    let term = object(
        "Chooses capacity reservations: by ID, or by all that is set of tags, owner and criteria.",
        &json!({
            "tags": selected_tags(),
            "id": text_like("ID of the reservation.", "^cr-[0-9a-z]+$"),
            "ownerID": text_like("Account that owns the reservation.", "^[0-9]{12}$"),
            "instanceMatchCriteria": one_of("Which instances the reservation takes.", &["open", "targeted"]),
        }),
        &[],
    );
    list(
        "Capacity reservations that instances may run in: those that any of these terms chooses.",
        &term,
        &[
            any_of(&["tags", "id", "instanceMatchCriteria"]),
            alone_in_some_term(
                "id",
                &["tags", "ownerID", "instanceMatchCriteria"],
                "along with other fields in a capacity reservation selector term",
            ),
        ],
        &json!({"maxItems": 30}),
    )
}

fn placement_group() -> Value {
    object(
        "The placement group of the instances, by name or by ID.",
        &json!({
            "name": {"description": "Name of the group.", "type": "string", "minLength": 1},
            "id": text_like("ID of the group.", "^pg-[0-9a-z]+$"),
        }),
        &[
            rule(
                "has(self.name) || has(self.id)",
                "expected at least one, got none, ['name', 'id']",
            ),
            rule(
                "!(has(self.name) && has(self.id))",
                "'name' and 'id' are mutually exclusive",
            ),
        ],
    )
}

/// The rule that a field of an image term excludes the others; unlike those of the other selectors, no term may violate it.
fn alone_in_every_term(field: &str, other: &str) -> Value {
    rule(
        &format!(
            "self.all(term, !has(term.{field}) || !(has(term.{other}) || has(term.tags) || has(term.name) || has(term.owner)))"
        ),
        &format!(
            "'{field}' is mutually exclusive, cannot be set with a combination of other fields in amiSelectorTerms"
        ),
    )
}

fn images() -> Value {
    let families: Vec<String> = ALIASES.iter().map(|(alias, ..)| format!("'{alias}'")).collect();
    let families = families.join(", ");
    let mut alias = text("An image of AWS as family@version, such as al2023@latest or bottlerocket@v1.46.0.");
    alias["maxLength"] = json!(30);
    alias["x-kubernetes-validations"] = json!([
        rule(
            "self.matches('^[a-zA-Z0-9]+@.+$')",
            "'alias' is improperly formatted, must match the format 'family@version'"
        ),
        rule(
            &format!("self.split('@')[0] in [{families}]"),
            &format!("family is not supported, must be one of the following: {families}")
        ),
        rule(
            "!(self.split('@')[0] in ['windows2019', 'windows2022', 'windows2025']) || self.split('@')[1] == 'latest'",
            "windows families may only specify version 'latest'"
        ),
    ]);
    let term = object(
        "Chooses images: by alias, by ID, by SSM parameter, or by all that is set of tags, name and owner.",
        &json!({
            "alias": alias,
            "tags": selected_tags(),
            "id": text_like("ID of the image.", "ami-[0-9a-z]+"),
            "name": text("Name of the image, which is not its tag Name. * and ? match any text."),
            "owner": text("Account that owns the image, or self, amazon, aws-marketplace."),
            "ssmParameter": text("Name or ARN of an SSM parameter that holds the ID of the image."),
        }),
        &[],
    );
    list(
        "Images of the instances: those that any of these terms chooses.",
        &term,
        &[
            any_of(&["tags", "id", "name", "alias", "ssmParameter"]),
            alone_in_every_term("id", "alias"),
            alone_in_every_term("alias", "id"),
            rule(
                "self.size() == 1 || !self.exists(term, has(term.alias))",
                "'alias' is mutually exclusive, cannot be set with a combination of other amiSelectorTerms",
            ),
        ],
        &json!({"minItems": 1, "maxItems": 30}),
    )
}

fn tags() -> Value {
    let reserved = |test: &str, key: &str| {
        rule(
            &format!("self.all(key, {test})"),
            &format!("tag contains a restricted tag matching {key}"),
        )
    };
    let is_not = |key: &str| reserved(&format!("key != '{key}'"), key);
    json!({
        "description": "Tags of everything that is made for instances.",
        "type": "object",
        "additionalProperties": {"type": "string"},
        "x-kubernetes-validations": [
            rule("self.all(key, key != '')", "empty tag keys aren't supported"),
            is_not("eks:eks-cluster-name"),
            reserved("!key.startsWith('kubernetes.io/cluster')", "kubernetes.io/cluster/"),
            is_not("karpenter.sh/nodepool"),
            is_not("karpenter.sh/nodeclaim"),
            is_not("karpenter.k8s.aws/ec2nodeclass"),
        ],
    })
}

fn block_device_mappings() -> Value {
    let ebs = object(
        "The EBS volume.",
        &json!({
            "deleteOnTermination": flag("Whether the volume ends with its instance."),
            "encrypted": flag("Whether the volume is encrypted."),
            "iops": count("Operations a second, for io1, io2 and gp3.", "int64", None, None),
            "kmsKeyID": text("Key with which the volume is encrypted."),
            "snapshotID": text("Snapshot from which the volume is made."),
            "throughput": count("MiB a second, for gp3.", "int64", None, None),
            "volumeInitializationRate": count("MiB a second at which the snapshot is read in.", "int32", Some(100), Some(300)),
            "volumeSize": text_like("Size in Gi, G, Ti or T, such as 20Gi.", VOLUME_SIZE_PATTERN),
            "volumeType": one_of("Type of the volume.", &["standard", "io1", "io2", "gp2", "sc1", "st1", "gp3"]),
        }),
        &[
            rule(
                "has(self.snapshotID) || has(self.volumeSize)",
                "snapshotID or volumeSize must be defined",
            ),
            rule(
                "!has(self.volumeInitializationRate) || (has(self.snapshotID) && self.snapshotID != '')",
                "snapshotID must be set when volumeInitializationRate is set",
            ),
        ],
    );
    let mapping = object(
        "A volume.",
        &json!({
            "deviceName": text("Name of the device, such as /dev/xvda."),
            "ebs": ebs,
            "rootVolume": flag("Whether pods' ephemeral storage is on this volume."),
        }),
        &[],
    );
    list(
        "Volumes of the instances. By default those that the family needs.",
        &mapping,
        &[rule(
            "self.filter(mapping, has(mapping.rootVolume) && mapping.rootVolume).size() <= 1",
            "must have only one blockDeviceMappings with rootVolume",
        )],
        &json!({"maxItems": 50}),
    )
}

fn network_interfaces() -> Value {
    let mut interface = object(
        "A network interface.",
        &json!({
            "networkCardIndex": count("The card.", "int32", Some(0), None),
            "deviceIndex": count("Its place on the card.", "int32", Some(0), None),
            "interfaceType": one_of("What it carries: ordinary traffic, or Elastic Fabric Adapter traffic only.", &["interface", "efa-only"]),
        }),
        &[],
    );
    interface["required"] = json!(["deviceIndex", "interfaceType", "networkCardIndex"]);
    list(
        "Network interfaces of the instances, instead of one on card 0.",
        &interface,
        &[
            rule(
                "self.size() == 0 || self.exists(one, one.deviceIndex == 0 && one.networkCardIndex == 0 && one.interfaceType == 'interface')",
                "networkInterfaces must include a primary interface with interfaceType='interface'",
            ),
            rule(
                "self.all(one, self.filter(other, one.networkCardIndex == other.networkCardIndex && one.deviceIndex == other.deviceIndex).size() == 1 \
                 && (one.interfaceType != 'efa-only' || self.filter(other, one.networkCardIndex == other.networkCardIndex && other.interfaceType == 'efa-only').size() == 1))",
                "networkInterfaces must not have duplicate networkCardIndex and deviceIndex pairs, and can have at most one efa device per network card",
            ),
        ],
        &json!({"maxItems": 150}),
    )
}

fn metadata_options() -> Value {
    let with_default = |mut schema: Value, default: Value| {
        schema["default"] = default;
        schema
    };
    let mut options = object(
        "Access to the instance metadata service. By default only processes on the node itself are served, and a token is required.",
        &json!({
            "httpEndpoint": with_default(one_of("Whether it is enabled.", &["enabled", "disabled"]), json!("enabled")),
            "httpProtocolIPv6": with_default(one_of("Whether it is enabled over IPv6.", &["enabled", "disabled"]), json!("disabled")),
            "httpPutResponseHopLimit": with_default(count("Maximum number of network hops of a response.", "int64", Some(1), Some(64)), json!(1)),
            "httpTokens": with_default(one_of("Whether a token is required.", &["required", "optional"]), json!("required")),
        }),
        &[],
    );
    options["default"] = json!({
        "httpEndpoint": "enabled", "httpProtocolIPv6": "disabled", "httpPutResponseHopLimit": 1, "httpTokens": "required",
    });
    options
}

fn connection_tracking() -> Value {
    let seconds = |description: &str, minimum: i64, maximum: i64| {
        count(description, "int32", Some(minimum), Some(maximum))
    };
    object(
        "Idle timeouts of tracked connections, in seconds. For Nitro instances.",
        &json!({
            "tcpEstablishedTimeout": seconds("Idle TCP connections.", 60, 432_000),
            "udpStreamTimeout": seconds("UDP flows with more than one request and response.", 60, 180),
            "udpTimeout": seconds("Other UDP flows.", 30, 60),
        }),
        &[rule(
            "has(self.tcpEstablishedTimeout) || has(self.udpStreamTimeout) || has(self.udpTimeout)",
            "at least one of tcpEstablishedTimeout, udpStreamTimeout, or udpTimeout must be set",
        )],
    )
}

fn status() -> Value {
    let required = |mut schema: Value, fields: &[&str]| {
        schema["required"] = json!(fields);
        schema
    };
    let subnet = object(
        "A subnet.",
        &json!({"id": text("ID."), "zone": text("Zone."), "zoneID": text("ID of the zone, the same in every account.")}),
        &[],
    );
    let group = object(
        "A security group.",
        &json!({"id": text("ID."), "name": text("Name.")}),
        &[],
    );
    let requirement = object(
        "One requirement on the labels of an instance type.",
        &json!({
            "key": text("Label key."),
            "operator": text("How the label is compared."),
            "values": {"description": "The values to compare with.", "type": "array", "x-kubernetes-list-type": "atomic", "items": {"type": "string"}},
        }),
        &[],
    );
    let image = object(
        "An image.",
        &json!({
            "id": text("ID."),
            "name": text("Name."),
            "deprecated": flag("Whether it is deprecated."),
            "requirements": list("Which instance types it is for.", &required(requirement, &["key", "operator"]), &[], &Value::Null),
        }),
        &[],
    );
    object(
        "What the selectors resolved to, and whether the class is ready.",
        &json!({
            "subnets": list("Subnets, most free addresses first.", &required(subnet, &["id", "zone"]), &[], &Value::Null),
            "securityGroups": list("Security groups, by ID.", &required(group, &["id"]), &[], &Value::Null),
            "capacityReservations": list("Capacity reservations, by ID.", &reservation(), &[], &Value::Null),
            "amis": list("Images, newest first.", &required(image, &["id", "requirements"]), &[], &Value::Null),
            "instanceProfile": text("Name of the instance profile in use."),
            "conditions": shared::conditions(false),
        }),
        &[],
    )
}

fn reservation() -> Value {
    let with_default = |mut schema: Value, default: &str| {
        schema["default"] = json!(default);
        schema
    };
    let mut reservation = object(
        "A capacity reservation.",
        &json!({
            "id": text_like("ID.", "^cr-[0-9a-z]+$"),
            "availabilityZone": text("Zone."),
            "instanceType": text("Instance type."),
            "instanceMatchCriteria": one_of("Which instances it accepts.", &["open", "targeted"]),
            "ownerID": text_like("Account that owns it.", "^[0-9]{12}$"),
            "endTime": {"description": "When it ends.", "type": "string", "format": "date-time"},
            "reservationType": with_default(one_of("What it is.", &["default", "capacity-block"]), "default"),
            "interruptible": flag("Whether its instances may be reclaimed."),
            "state": with_default(one_of("Whether it is active or expiring.", &["active", "expiring"]), "active"),
        }),
        &[],
    );
    reservation["required"] = json!([
        "availabilityZone",
        "id",
        "instanceMatchCriteria",
        "instanceType",
        "ownerID"
    ]);
    reservation
}
