//! Requests and replies against Azure's published OpenAPI documents (Z-031): versions, names of properties, what is required, what may not be sent, values of
//! enumerations. Facts of the documents stand in `golden/openapi`, with their sources.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};
use spokeshave_api::AKSNodeClass;
use spokeshave_azure_cloud::{Assertion, AzureProvider, Http, Outside, Request, Response};
use spokeshave_azure_simulated::{Azure, Options, Refusal};
use spokeshave_model::CapacityType;
use spokeshave_ports::conformance::check_all;
use spokeshave_ports::{CloudProvider, NoWrites, SharedClock, TokioClock};
use spokeshave_provider_azure::aks_machines::AksMachine;
use spokeshave_provider_azure::instance_types::{Settings, resolve};
use spokeshave_provider_azure::requests::{Access, Interface, Machine};
use spokeshave_provider_azure::skus;

use crate::conformance::Subject;
use crate::document::{Document, Way};
use crate::world::{on_demand, provider_options, shown, with_aks};

const COMPUTE: &str = "Microsoft.Compute 2024-07-01";
const NETWORK: &str = "Microsoft.Network 2024-05-01";
const SKUS: &str = "Microsoft.Compute 2021-07-01";
const GALLERIES: &str = "Microsoft.Compute 2023-07-03";
const GRAPH: &str = "Microsoft.ResourceGraph 2021-03-01";
const AKS: &str = "Microsoft.ContainerService 2026-08-02-preview";
const AKS_OPERATIONS: &str = "Microsoft.ContainerService 2016-03-30";
/// What is sent though the documents say that it is the service's: Karpenter's own provider chooses the image with it (`golden/openapi/definitions.tsv`).
const SENT_ALL_THE_SAME: &str = "Machine.properties.nodeImageVersion: only the service says that";

/// What the documents say of a request: its name there, method and path, whose it is, what may stand in the query, what is sent, what is answered, and with
/// which statuses.
struct Rule {
    name: &'static str,
    method: &'static str,
    path: &'static str,
    api: &'static str,
    query: &'static [&'static str],
    sent: Option<&'static str>,
    answered: &'static str,
    statuses: &'static [u16],
}

const MACHINE: &str = "/subscriptions/*/resourcegroups/*/providers/microsoft.compute/virtualmachines/*";
const INTERFACE: &str = "/subscriptions/*/resourcegroups/*/providers/microsoft.network/networkinterfaces/*";
const SUBNET: &str =
    "/subscriptions/*/resourcegroups/*/providers/microsoft.network/virtualnetworks/*/subnets/*";
const LOCATION: &str = "/subscriptions/*/providers/microsoft.compute/locations/*";
const POOL: &str =
    "/subscriptions/*/resourcegroups/*/providers/microsoft.containerservice/managedclusters/*/agentpools/*";
const AKS_LOCATION: &str = "/subscriptions/*/providers/microsoft.containerservice/locations/*";

#[rustfmt::skip]
const RULES: [Rule; 21] = [
    Rule { name: "VirtualMachines_CreateOrUpdate", method: "PUT", path: MACHINE, api: COMPUTE, query: &[], sent: Some("VirtualMachine"), answered: "VirtualMachine", statuses: &[200, 201] },
    Rule { name: "VirtualMachines_Get", method: "GET", path: MACHINE, api: COMPUTE, query: &[], sent: None, answered: "VirtualMachine", statuses: &[200] },
    Rule { name: "VirtualMachines_Update", method: "PATCH", path: MACHINE, api: COMPUTE, query: &[], sent: Some("VirtualMachineUpdate"), answered: "VirtualMachine", statuses: &[200] },
    Rule { name: "VirtualMachines_Delete", method: "DELETE", path: MACHINE, api: COMPUTE, query: &["forceDeletion"], sent: None, answered: "", statuses: &[200, 202, 204] },
    Rule { name: "NetworkInterfaces_CreateOrUpdate", method: "PUT", path: INTERFACE, api: NETWORK, query: &[], sent: Some("Interface"), answered: "Interface", statuses: &[200, 201] },
    Rule { name: "NetworkInterfaces_Get", method: "GET", path: INTERFACE, api: NETWORK, query: &[], sent: None, answered: "Interface", statuses: &[200] },
    Rule { name: "NetworkInterfaces_UpdateTags", method: "PATCH", path: INTERFACE, api: NETWORK, query: &[], sent: Some("TagsObject"), answered: "Interface", statuses: &[200] },
    Rule { name: "NetworkInterfaces_Delete", method: "DELETE", path: INTERFACE, api: NETWORK, query: &[], sent: None, answered: "", statuses: &[200, 202, 204] },
    Rule { name: "Subnets_Get", method: "GET", path: SUBNET, api: NETWORK, query: &[], sent: None, answered: "Subnet", statuses: &[200] },
    Rule { name: "ResourceSkus_List", method: "GET", path: "/subscriptions/*/providers/microsoft.compute/skus", api: SKUS, query: &["$filter", "$skiptoken"], sent: None, answered: "ResourceSKUsResult", statuses: &[200] },
    Rule { name: "Usage_List", method: "GET", path: "@/usages", api: COMPUTE, query: &["$skiptoken"], sent: None, answered: "ListUsagesResult", statuses: &[200] },
    Rule { name: "CommunityGalleryImageVersions_List", method: "GET", path: "@/communitygalleries/*/images/*/versions", api: GALLERIES, query: &["$skiptoken"], sent: None, answered: "CommunityGalleryImageVersionList", statuses: &[200] },
    Rule { name: "operation", method: "GET", path: "@/operations/*", api: COMPUTE, query: &[], sent: None, answered: "operation", statuses: &[200, 202] },
    Rule { name: "Resources", method: "POST", path: "/providers/microsoft.resourcegraph/resources", api: GRAPH, query: &[], sent: Some("QueryRequest"), answered: "QueryResponse", statuses: &[200] },
    Rule { name: "Machines_CreateOrUpdate", method: "PUT", path: "%/machines/*", api: AKS, query: &[], sent: Some("Machine"), answered: "Machine", statuses: &[200, 201] },
    Rule { name: "Machines_Get", method: "GET", path: "%/machines/*", api: AKS, query: &[], sent: None, answered: "Machine", statuses: &[200] },
    Rule { name: "Machines_List", method: "GET", path: "%/machines", api: AKS, query: &["$skiptoken", "$expand"], sent: None, answered: "MachineListResult", statuses: &[200] },
    Rule { name: "AgentPools_Get", method: "GET", path: "%", api: AKS, query: &[], sent: None, answered: "AgentPool", statuses: &[200] },
    Rule { name: "AgentPools_DeleteMachines", method: "POST", path: "%/deletemachines", api: AKS, query: &[], sent: Some("AgentPoolDeleteMachinesParameter"), answered: "", statuses: &[202] },
    Rule { name: "ContainerService_ListNodeImageVersions", method: "GET", path: "&/nodeimageversions", api: AKS, query: &["$skiptoken"], sent: None, answered: "NodeImageVersionsListResult", statuses: &[200] },
    Rule { name: "operation of AKS", method: "GET", path: "&/operations/*", api: AKS_OPERATIONS, query: &[], sent: None, answered: "operation", statuses: &[200, 202] },
];

impl Rule {
    fn is_of_aks(&self) -> bool {
        self.api.starts_with("Microsoft.ContainerService")
    }

    fn whole_path(&self) -> String {
        let path = self.path.replace('@', LOCATION).replace('&', AKS_LOCATION);
        path.replace('%', POOL)
    }

    fn is_of(&self, method: &str, path: &str) -> bool {
        let (asked, own) = (path.to_lowercase(), self.whole_path());
        let (asked, own): (Vec<&str>, Vec<&str>) = (asked.split('/').collect(), own.split('/').collect());
        self.method == method
            && asked.len() == own.len()
            && asked
                .iter()
                .zip(&own)
                .all(|(asked, own)| *own == "*" || asked == own)
    }
}

fn rule(method: &str, path: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.is_of(method, path))
}

/// An Azure whose requests and replies are held against the documents.
#[derive(Debug)]
struct Checked {
    azure: Azure,
    problems: Mutex<BTreeSet<String>>,
    seen: Mutex<BTreeSet<&'static str>>,
}

impl Checked {
    fn new(azure: Azure) -> Arc<Self> {
        Arc::new(Checked {
            azure,
            problems: Mutex::default(),
            seen: Mutex::default(),
        })
    }

    fn problem(&self, problem: String) {
        self.problems.lock().unwrap().insert(problem);
    }

    fn hold(&self, request: &Request, reply: &Response) {
        let (_, rest) = request.url.split_once("://").unwrap();
        let whole = &rest[rest.find('/').unwrap()..];
        let (path, query) = whole.split_once('?').unwrap_or((whole, ""));
        if path.ends_with("/oauth2/v2.0/token") || path == "/api/retail/prices" {
            return;
        }
        let line = format!("{} {path}", request.method);
        let Some(rule) = rule(request.method, path) else {
            self.problem(format!("{line}: no operation of the documents"));
            return;
        };
        self.seen.lock().unwrap().insert(rule.name);
        let document = Document::read();
        let wrong = |problems: Vec<String>| {
            for problem in problems {
                self.problem(format!("{}: {problem}", rule.name));
            }
        };
        let version = rule.api.rsplit(' ').next().unwrap();
        let mut versions = 0;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if name == "api-version" {
                versions += 1;
                if value != version {
                    self.problem(format!("{}: version {value}, not {version}", rule.name));
                }
            } else if !rule.query.contains(&name) {
                self.problem(format!("{}: no parameter {name}", rule.name));
            }
        }
        if versions != 1 {
            self.problem(format!("{}: {versions} versions", rule.name));
        }
        match rule.sent {
            Some(definition) => {
                let body = serde_json::from_slice(&request.body).unwrap();
                let mut problems = document.check((rule.api, definition), Way::Sent, &body);
                problems.retain(|problem| problem != SENT_ALL_THE_SAME);
                wrong(problems);
            }
            None => assert!(request.body.is_empty(), "{line}"),
        }
        let body: Option<Value> = serde_json::from_slice(&reply.body).ok();
        if reply.status >= 400 {
            let body = body.unwrap_or_else(|| panic!("{line}: an error without a body"));
            wrong(document.check((rule.api, "ErrorResponse"), Way::Answered, &body));
        } else if !rule.statuses.contains(&reply.status) {
            self.problem(format!("{}: status {}", rule.name, reply.status));
        } else if let (false, Some(body)) = (rule.answered.is_empty(), body) {
            wrong(document.check((rule.api, rule.answered), Way::Answered, &body));
            if rule.answered == "QueryResponse" {
                for row in body["data"].as_array().unwrap() {
                    let is_machine = row["type"] == "Microsoft.Compute/virtualMachines";
                    let of = if is_machine {
                        (COMPUTE, "VirtualMachine")
                    } else {
                        (NETWORK, "Interface")
                    };
                    wrong(document.check(of, Way::Answered, row));
                }
            }
        }
    }
}

impl Http for Checked {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, String>> {
        let reply = self.azure.answer(&request);
        if let Ok(reply) = &reply {
            self.hold(&request, reply);
        }
        std::future::ready(reply).boxed()
    }
}

impl Assertion for Checked {
    fn token(&self) -> Result<String, String> {
        self.azure.token()
    }
}

fn class(spec: &Value) -> AKSNodeClass {
    AKSNodeClass::new("class", serde_json::from_value(spec.clone()).unwrap())
}

/// A provider whose every request and reply is held against the documents, and that has kept the promises of the port.
struct Held {
    azure: Azure,
    checked: Arc<Checked>,
    provider: AzureProvider,
    clock: SharedClock,
    leader: tokio::task::JoinHandle<()>,
}

impl Held {
    async fn new(mut options: Options) -> Self {
        let clock = TokioClock::new("2026-09-01T00:00:00Z".parse().unwrap(), 1.0).shared();
        options.page = 10;
        options.quota = [
            ("standardDSv5Family".to_owned(), 100),
            ("standardESv5Family".to_owned(), 4),
        ]
        .into();
        let provider_options = provider_options(&options);
        let azure = Azure::new(options, clock.clone());
        let checked = Checked::new(azure.clone());
        let outside = Outside {
            http: checked.clone(),
            assertion: checked.clone(),
        };
        let provider = AzureProvider::new(outside, clock.clone(), provider_options);
        let leads = provider.clone();
        let leader = tokio::spawn(async move { leads.lead(Arc::new(NoWrites)).await });
        let held = Held {
            azure,
            checked,
            provider,
            clock,
            leader,
        };
        held.wait(15).await;
        let class = class(&json!({}));
        let ready = held
            .provider
            .reconcile_class(&class, Some("v1.34.1"), true)
            .await
            .0;
        held.provider.put_class(ready);
        let subject = Subject {
            provider: held.provider.clone(),
            clock: held.clock.clone(),
        };
        check_all(&subject)
            .await
            .unwrap_or_else(|failures| panic!("{failures}"));
        held
    }

    async fn wait(&self, seconds: u64) {
        self.clock.sleep(std::time::Duration::from_secs(seconds)).await;
    }

    async fn retag(&self, id: Option<&str>) {
        let [before, wanted] = ["a", "b"].map(|value| [("team".to_owned(), value.to_owned())].into());
        let changed = self.provider.change_tags(id.unwrap(), &before, &wanted);
        changed.await.unwrap();
    }

    /// Names of the operations that were asked for, none of which was wrong in anything.
    fn seen(self) -> BTreeSet<&'static str> {
        self.leader.abort();
        let problems = self.checked.problems.lock().unwrap();
        assert!(problems.is_empty(), "{problems:#?}");
        self.checked.seen.lock().unwrap().clone()
    }
}

#[tokio::test(start_paused = true)]
async fn z_031_what_is_asked_and_answered_is_in_azures_openapi_documents() {
    let held = Held::new(Options::slow()).await;
    let (azure, provider) = (&held.azure, &held.provider);
    // What goes wrong is answered in their shape too: quota, capacity, a denied action, patience, a failure after acceptance, an interface that is kept.
    let tagged = provider.create(&on_demand("tagged", "Standard_D4s_v5")).await;
    held.wait(600).await;
    held.retag(tagged.unwrap().provider_id()).await;
    let too_large = provider.create(&on_demand("large", "Standard_E8s_v5")).await;
    assert!(too_large.is_err());
    azure.refuse(Refusal {
        code: "AllocationFailed".to_owned(),
        message: "Allocation failed.".to_owned(),
        status: Some(409),
        ..Refusal::default()
    });
    assert!(
        provider
            .create(&on_demand("none", "Standard_D4s_v5"))
            .await
            .is_err()
    );
    azure.refuse_nothing();
    azure.deny("PUT microsoft.compute/virtualmachines");
    assert!(
        provider
            .create(&on_demand("denied", "Standard_D2ds_v5"))
            .await
            .is_err()
    );
    azure.heal();
    azure.throttle(1, 1);
    azure.leave_interface(
        "aks-left",
        &json!({"karpenter.azure.com_cluster": "cluster", "karpenter.sh_nodepool": "pool"}),
    );
    azure.reserve_interface("aks-left");
    held.wait(1200).await;
    azure.refuse(Refusal {
        code: "InternalExecutionError".to_owned(),
        message: "An internal error.".to_owned(),
        ..Refusal::default()
    });
    drop(provider.create(&on_demand("fails", "Standard_D2s_v5")).await);
    held.wait(1200).await;
    let all = RULES.iter().filter(|rule| !rule.is_of_aks());
    assert_eq!(held.seen(), all.map(|rule| rule.name).collect());
}

#[tokio::test(start_paused = true)]
async fn z_040_what_aks_is_asked_and_answers_is_in_its_documents() {
    let held = Held::new(with_aks(Options::slow())).await;
    let (azure, provider) = (&held.azure, &held.provider);
    let too_large = provider.create(&on_demand("large", "Standard_E8s_v5")).await;
    assert!(too_large.is_err());
    for (code, status) in [
        ("VMSizeNotSupported", Some(400)),
        ("AllocationFailed", Some(409)),
        ("ZonalAllocationFailed", None),
    ] {
        azure.refuse(Refusal {
            code: code.to_owned(),
            message: "No.".to_owned(),
            status,
            ..Refusal::default()
        });
        drop(provider.create(&on_demand("none", "Standard_D4s_v5")).await);
        held.wait(1200).await;
        azure.refuse_nothing();
        held.wait(24 * 3600).await;
    }
    azure.deny("PUT microsoft.containerservice/managedclusters/agentpools/machines");
    assert!(
        provider
            .create(&on_demand("denied", "Standard_D2ds_v5"))
            .await
            .is_err()
    );
    azure.heal();
    azure.set_drift_action("Recreate");
    let created = provider.create(&on_demand("evicted", "Standard_D2s_v5")).await;
    let created = created.unwrap();
    held.wait(600).await;
    held.retag(created.provider_id()).await;
    assert_eq!(provider.list().await.unwrap().len(), 1);
    azure.set_drift_action("Recreate");
    assert!(
        provider
            .is_drifted(&created, Some(&shown(&class(&json!({})))))
            .await
            .unwrap()
            .is_some()
    );
    azure.evict(created.provider_id().unwrap().rsplit('/').next().unwrap());
    held.wait(1200).await;
    assert_eq!(azure.aks_machines(), Vec::<String>::new());
    let seen = held.seen();
    let all = RULES.iter().filter(|rule| rule.is_of_aks());
    let missing: Vec<&str> = all
        .map(|rule| rule.name)
        .filter(|name| !seen.contains(name))
        .collect();
    assert_eq!(missing, [""; 0]);
}

/// One that says not even its version is not passed over.
#[tokio::test(start_paused = true)]
async fn z_031_a_request_without_a_query_is_held_against_them_as_well() {
    let clock = TokioClock::new("2026-09-01T00:00:00Z".parse().unwrap(), 1.0).shared();
    let checked = Checked::new(Azure::new(Options::instant(), clock));
    let id = "/subscriptions/sub/resourceGroups/nodes/providers/Microsoft.Compute/virtualMachines/aks-a";
    let request = Request {
        method: "GET",
        url: format!("https://azure.example{id}"),
        ..Request::default()
    };
    checked.send(request).await.unwrap();
    let problems = checked.problems.lock().unwrap();
    let problems: Vec<&str> = problems.iter().map(String::as_str).collect();
    assert_eq!(problems, ["VirtualMachines_Get: 0 versions"]);
}

#[test]
fn z_040_every_machine_that_a_class_can_lead_to_is_in_them() {
    let document = Document::read();
    let tags = [("karpenter.sh_nodepool".to_owned(), "pool".to_owned())].into();
    let dns = json!({"zone": ".", "queryLogging": "Error", "protocol": "PreferUDP", "forwardDestination": "VnetDNS", "forwardPolicy": "Random",
        "maxConcurrent": 1000, "cacheDuration": "1h", "serveStaleDuration": "1h", "serveStale": "Verify"});
    let sysctls = crate::document::SYSCTLS.map(|name| (name.to_owned(), json!(1)));
    let mut sysctls: serde_json::Map<String, Value> = sysctls.into_iter().collect();
    sysctls.insert("netIPv4IPLocalPortRange".to_owned(), json!("1024 60999"));
    sysctls.insert("netIPv4TCPTwReuse".to_owned(), json!(true));
    let mut checked = 0;
    for spec in [
        json!({}),
        json!({"imageFamily": "AzureLinux", "fipsMode": "FIPS", "osDiskSizeGB": 30, "maxPods": 50, "gpu": {"mode": "None"}}),
        json!({"vnetSubnetID": "/subscriptions/sub/…", "security": {"encryptionAtHost": true, "trustedLaunch": {"secureBoot": true, "vtpm": true}}}),
        json!({
            "artifactStreaming": {"enabled": true},
            "kubelet": {"cpuManagerPolicy": "static", "cpuCFSQuota": true, "cpuCFSQuotaPeriod": "100ms", "imageGCHighThresholdPercent": 80,
                "imageGCLowThresholdPercent": 70, "topologyManagerPolicy": "none", "allowedUnsafeSysctls": ["a"], "containerLogMaxSize": "50Mi",
                "containerLogMaxFiles": 5, "podPidsLimit": 100, "failSwapOn": false},
            "linuxOSConfig": {"swapFileSize": "1Gi", "transparentHugePageEnabled": "always", "transparentHugePageDefrag": "never", "sysctls": sysctls},
            "localDNS": {"mode": "Required", "vnetDNSOverrides": [dns], "kubeDNSOverrides": [dns]},
        }),
    ] {
        let class = class(&spec);
        let sizes = skus::facts("southcentralus");
        for sku in &sizes {
            for (zone, capacity_type) in [(Some("1"), CapacityType::Spot), (None, CapacityType::OnDemand)] {
                let body = AksMachine {
                    zone,
                    capacity_type,
                    sku,
                    instance_type: &resolve(sku, &class, &Settings::default()),
                    class: &class,
                    kubernetes_version: "1.34.1",
                    image_version: "AKSUbuntu-2404gen2containerd-202608.1.0",
                    labels: &[("team".to_owned(), "a".to_owned())].into(),
                    taints: &[],
                    tags: &tags,
                }
                .body();
                let mut problems = document.check((AKS, "Machine"), Way::Sent, &body);
                problems.retain(|problem| problem != SENT_ALL_THE_SAME);
                assert!(problems.is_empty(), "{} {spec}: {problems:#?}", sku.name);
                checked += 1;
            }
        }
    }
    assert!(checked > 500, "{checked} bodies");
}

#[test]
fn z_031_every_body_that_a_class_can_lead_to_is_in_them() {
    let document = Document::read();
    let tags = [("karpenter.sh_nodepool".to_owned(), "pool".to_owned())].into();
    let identity =
        "/subscriptions/sub/resourceGroups/r/providers/Microsoft.ManagedIdentity/userAssignedIdentities/i";
    let plain = Access {
        admin_username: "azureuser".to_owned(),
        ssh_public_key: "ssh-ed25519 AAAA".to_owned(),
        ..Access::default()
    };
    let full = Access {
        identities: vec![identity.to_owned()],
        disk_encryption_set_id: Some("/subscriptions/sub/…/diskEncryptionSets/keys".to_owned()),
        ..plain.clone()
    };
    let mut checked = 0;
    let mut placements = BTreeSet::new();
    for spec in [
        json!({}),
        json!({"osDiskSizeGB": 30}),
        json!({"security": {"encryptionAtHost": true}}),
        json!({"security": {"trustedLaunch": {"secureBoot": true, "vtpm": true}}}),
    ] {
        for sku in skus::facts("southcentralus") {
            for (zone, capacity_type, access, image_id) in [
                (
                    Some("1"),
                    CapacityType::Spot,
                    &plain,
                    "/CommunityGalleries/g/images/i/versions/1.0.0",
                ),
                (
                    None,
                    CapacityType::OnDemand,
                    &full,
                    "/subscriptions/sub/…/images/i",
                ),
            ] {
                let machine = Machine {
                    name: "aks-a",
                    location: "southcentralus",
                    zone,
                    capacity_type,
                    sku: &sku,
                    class: &class(&spec),
                    image_id,
                    interface_id: "/subscriptions/sub/…/networkInterfaces/aks-a",
                    tags: &tags,
                    custom_data: "#!/bin/sh",
                    access,
                    has_ultra_disks: zone.is_some(),
                };
                let body = machine.body();
                let problems = document.check((COMPUTE, "VirtualMachine"), Way::Sent, &body);
                assert!(problems.is_empty(), "{} {spec}: {problems:#?}", sku.name);
                let disk = &body["properties"]["storageProfile"]["osDisk"];
                placements.insert(disk["diffDiskSettings"]["placement"].as_str().map(str::to_owned));
                checked += 1;
            }
        }
    }
    assert!(checked > 500, "{checked} bodies");
    assert_eq!(placements.len(), 4, "all placements, and none: {placements:?}");
    let interface = Interface {
        location: "southcentralus",
        tags: &tags,
        subnet_id: "/subscriptions/sub/…/subnets/s",
        backend_pools: &["/subscriptions/sub/…/backendAddressPools/kubernetes".to_owned()],
        security_group_id: Some("/subscriptions/sub/…/networkSecurityGroups/nsg"),
        is_accelerated: true,
        pod_addresses: 3,
    };
    let problems = document.check((NETWORK, "Interface"), Way::Sent, &interface.body());
    assert!(problems.is_empty(), "{problems:#?}");
}

#[derive(Deserialize)]
pub(crate) struct Example {
    pub(crate) file: String,
    api: String,
    definition: String,
    pub(crate) sent: bool,
    pub(crate) body: Value,
}

pub(crate) fn examples() -> Vec<Example> {
    serde_json::from_str(include_str!("../golden/openapi/examples.json")).unwrap()
}

#[test]
fn z_031_azures_own_examples_pass_and_what_is_wrong_does_not() {
    let document = Document::read();
    for example in examples() {
        let way = if example.sent { Way::Sent } else { Way::Answered };
        let of = (example.api.as_str(), example.definition.as_str());
        let problems = document.check(of, way, &example.body);
        assert!(problems.is_empty(), "{}: {problems:#?}", example.file);
    }
    let machine = examples()
        .into_iter()
        .find(|it| it.sent && it.definition == "VirtualMachine");
    let machine = machine.unwrap().body;
    let wrong = |path: &[&str], value: Value| {
        let mut body = machine.clone();
        let (last, before) = path.split_last().unwrap();
        let parent = before.iter().fold(&mut body, |body, name| &mut body[*name]);
        parent[*last] = value;
        document.check((COMPUTE, "VirtualMachine"), Way::Sent, &body)
    };
    for (path, value, problem) in [
        (&["properties", "vmSize"][..], json!("x"), "no such property"),
        (&["properties", "priority"], json!("spot"), "none of"),
        (
            &["properties", "provisioningState"],
            json!("Succeeded"),
            "only the service",
        ),
        (&["zones"], json!("1"), "no list"),
        (&["location"], Value::Null, "required"),
        (
            &["properties", "billingProfile"],
            json!({"maxPrice": "-1"}),
            "no number",
        ),
        (
            &["properties", "storageProfile", "osDisk", "diskSizeGB"],
            json!(1.5),
            "no integer",
        ),
    ] {
        let problems = wrong(path, value);
        assert!(
            problems.iter().any(|it| it.contains(problem)),
            "{path:?}: {problems:?}"
        );
    }
}
