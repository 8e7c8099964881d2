//! the requests that upstream's own provider made for the same classes, claims and types.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Value, json};
use spokeshave_api::{EC2NodeClass, NodeClaim, NodeClaimSpec, NodePool};
use spokeshave_model::{CapacityType, InstanceType, Requirements};
use spokeshave_provider_aws::addresses::{Addresses, Chosen};
use spokeshave_provider_aws::choice::{ChoiceError, Wanted, choose};
use spokeshave_provider_aws::instance_types::{self, Settings};
use spokeshave_provider_aws::launch::{Context, LaunchError, fleet, templates};
use spokeshave_provider_aws::learned::Learned;
use spokeshave_provider_aws::offerings::{Market, instance_types};
use spokeshave_provider_aws::prices::Prices;
use spokeshave_provider_aws::requests::query::parameters;
use spokeshave_provider_aws::requests::{FleetRequest, Tags};
use spokeshave_provider_aws::unavailable::{OfferingKey, Unavailable};
use spokeshave_provider_aws::user_data::Cluster;
use spokeshave_provider_aws::{rehearsal, tags};

use crate::launched::launched;
use crate::oracle;
use crate::types::catalog;
use crate::user_data::normalised;

/// Scenarios whose launches are compared. `launch-faults` and `launch-not-ready` launch nothing.
const SCENARIOS: [&str; 10] = [
    "accelerators",
    "bottlerocket",
    "concurrent",
    "everything",
    "many-types",
    "no-capacity",
    "simple",
    "spot",
    "spot-prices",
    "windows-custom",
];

/// Scenarios that `just parity-aws` generates are called so.
pub const GENERATED: &str = "generated-";

/// The generated scenarios where there are any, else those of the repository.
pub fn scenarios() -> Vec<String> {
    let generated = oracle::generated("launch-");
    let generated: Vec<String> = generated
        .into_iter()
        .filter(|name| name.starts_with(GENERATED))
        .collect();
    if generated.is_empty() {
        return SCENARIOS.map(str::to_owned).into();
    }
    generated
}

/// A file of objects with the answers of upstream.
pub struct Scenario {
    pub name: String,
    pub objects: Vec<Value>,
    pub expected: Value,
}

impl Scenario {
    pub fn read(name: &str) -> Self {
        Scenario {
            name: name.to_owned(),
            objects: serde_saphyr::from_multiple::<Value>(&oracle::text(&format!("launch-{name}.yaml")))
                .unwrap()
                .into_iter()
                .filter(|object| !object.is_null())
                .collect(),
            expected: oracle::json(&format!("expected/launch-{name}.json")),
        }
    }

    pub fn objects<T: serde::de::DeserializeOwned>(&self, kind: &str) -> Vec<T> {
        let objects = self.objects.iter().filter(|object| object["kind"] == kind);
        objects
            .map(|object| serde_json::from_value(object.clone()).unwrap())
            .collect()
    }

    fn argument(&self, name: &str) -> Option<&str> {
        let scenario = self.objects.iter().find(|object| object["kind"] == "Scenario")?;
        let mut arguments = scenario["args"].as_array()?.iter().filter_map(Value::as_str);
        arguments.find_map(|argument| argument.strip_prefix(name)?.strip_prefix('='))
    }

    pub fn cluster(&self) -> Cluster {
        let scenario = self.objects.iter().find(|object| object["kind"] == "Scenario");
        let dns = scenario.and_then(|scenario| scenario["clusterDNS"].as_str());
        let endpoint = self.argument("--cluster-endpoint");
        Cluster {
            name: "oracle".to_owned(),
            endpoint: endpoint.unwrap_or("https://oracle.example").to_owned(),
            ca_bundle: Some("b3JhY2xlIENB".to_owned()),
            cidr: Some("172.20.0.0/16".to_owned()),
            dns: dns.map(|dns| dns.parse().unwrap()),
        }
    }

    /// The class with the status that upstream found for it.
    pub fn class(&self, name: &str) -> EC2NodeClass {
        let mut classes = self.objects::<EC2NodeClass>("EC2NodeClass").into_iter();
        let mut class = classes.find(|class| class.name() == name).unwrap();
        let found = oracle::list(&self.expected, "node_classes");
        let mut status = found.iter().find(|class| class["name"] == name).unwrap()["status"].clone();
        status.as_object_mut().unwrap().remove("conditions");
        class.status = Some(serde_json::from_value(status).unwrap());
        class
    }

    fn types(&self, class: &EC2NodeClass, unavailable: &Unavailable) -> Vec<InstanceType> {
        let catalog = catalog("../catalog.json");
        let reserved_enis = self.argument("--reserved-enis");
        let settings = Settings {
            reserved_enis: reserved_enis.map_or(0, |number| number.parse().unwrap()),
            ..Settings::default()
        };
        let market = Market {
            prices: &self.prices(),
            unavailable,
            reservations: &BTreeMap::new(),
            shifted: &BTreeSet::new(),
            learned: &Learned::default(),
            now: Timestamp::UNIX_EPOCH,
        };
        let context = instance_types::Context {
            class,
            region: "us-west-2",
            settings: &settings,
            learned_memory_bytes: None,
        };
        instance_types(&catalog.region, &context, &market)
    }

    /// Spot prices are those that upstream's overrides name, where the scenario has it fetch them.
    fn prices(&self) -> Prices {
        let mut prices = Prices::built_in("us-west-2");
        let scenario = self.objects.iter().find(|object| object["kind"] == "Scenario");
        if scenario.is_some_and(|scenario| scenario["spotPrices"] == true) {
            let fleets = self.requests("CreateFleet");
            let places = fleets.iter().flat_map(places).map(|place| {
                (
                    place["InstanceType"].as_str().unwrap().to_owned(),
                    place["AvailabilityZone"].as_str().unwrap().to_owned(),
                    place["Priority"].as_str().unwrap().parse::<f64>().unwrap(),
                )
            });
            spot_prices(&mut prices, places.collect());
        }
        prices
    }

    pub fn requests(&self, action: &str) -> Vec<Value> {
        let launches = oracle::list(&self.expected, "launches").iter();
        let together = self.expected.get("concurrent");
        let requests = launches
            .chain(together)
            .flat_map(|launch| launch["requests"].as_array());
        requests
            .flatten()
            .filter(|request| request["action"] == action)
            .map(|request| request["parameters"].clone())
            .collect()
    }
}

fn spot_prices(prices: &mut Prices, rows: Vec<(String, String, f64)>) {
    use spokeshave_provider_aws::prices::SpotPrice;
    let rows = rows.into_iter().map(|(instance_type, zone, dollars)| SpotPrice {
        instance_type,
        zone,
        price: spokeshave_model::Price::from_dollars(dollars),
        time: Timestamp::UNIX_EPOCH,
    });
    prices.set_spot(rows);
}

fn places(fleet: &Value) -> Vec<Value> {
    let configs = oracle::list(fleet, "LaunchTemplateConfigs").iter();
    let places = configs.flat_map(|config| oracle::list(config, "Overrides"));
    places.cloned().collect()
}

/// Scalars as the query protocol writes them; lists in order of their content; what says nothing left out.
pub fn written(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(name, _)| *name != "ClientToken");
            let fields = fields.map(|(name, value)| (name.clone(), written(value)));
            Value::Object(fields.filter(|(_, value)| *value != json!({})).collect())
        }
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(written).collect();
            items.sort_by_key(ToString::to_string);
            Value::Array(items)
        }
        Value::Bool(_) | Value::Number(_) => json!(value.to_string()),
        other => other.clone(),
    }
}

/// A request as it arrives: encoded as it is sent, and read off the names of its parameters as the oracle's proxy does it.
fn on_the_wire(request: &impl serde::Serialize) -> Value {
    let mut read = json!({});
    for (name, value) in parameters(request).unwrap() {
        let mut place = &mut read;
        for part in name.split('.') {
            place = &mut place[part];
        }
        *place = json!(value);
    }
    numbered(read)
}

/// Fields that are numbered from one are lists.
fn numbered(value: Value) -> Value {
    let Value::Object(fields) = value else {
        return value;
    };
    let count = fields.len();
    if count > 0 && (1..=count).all(|number| fields.contains_key(&number.to_string())) {
        let items = (1..=count).map(|number| numbered(fields[&number.to_string()].clone()));
        return items.collect();
    }
    let fields = fields.into_iter();
    fields.map(|(name, value)| (name, numbered(value))).collect()
}

/// User data by its meaning, so that only that is compared. The oracle has decoded it.
fn by_meaning(template: &Value, family: &str) -> Value {
    let mut template = template.clone();
    let data = &mut template["LaunchTemplateData"]["UserData"];
    let text = match data["decoded"].as_str() {
        Some(text) => text.to_owned(),
        None => {
            use base64::Engine as _;
            let text = data.as_str().unwrap_or_default();
            let bytes = base64::engine::general_purpose::STANDARD.decode(text).unwrap();
            String::from_utf8(bytes).unwrap()
        }
    };
    *data = normalised(family, &text);
    written(&template)
}

/// Names of templates are ours: a template is known by its content.
pub fn with_contents(fleet: &Value, contents: &BTreeMap<String, Value>) -> Value {
    let mut fleet = fleet.clone();
    for config in fleet["LaunchTemplateConfigs"].as_array_mut().unwrap() {
        let name = config["LaunchTemplateSpecification"]["LaunchTemplateName"].clone();
        let mut content = contents[name.as_str().unwrap()].clone();
        content["LaunchTemplateName"] = Value::Null;
        config["LaunchTemplateSpecification"]["LaunchTemplateName"] = content;
    }
    written(&fleet)
}

pub fn contents(templates: &[Value], family: &str) -> BTreeMap<String, Value> {
    let named = templates.iter().map(|template| {
        let name = template["LaunchTemplateName"].as_str().unwrap().to_owned();
        (name, by_meaning(template, family))
    });
    named.collect()
}

pub struct Ours {
    chosen: Chosen,
    templates: Vec<Value>,
    fleet: Value,
    request: FleetRequest,
    /// The NodeClaim of the instance that upstream got, where our catalogue has its type.
    pub claim: Option<NodeClaim>,
}

/// What the scenario's subnets have free: a range of addresses less the five that AWS keeps. The status names them in this order.
pub fn free_addresses(class: &EC2NodeClass) -> Addresses {
    let mut addresses = Addresses::default();
    let subnets = &class.status.as_ref().unwrap().subnets;
    for (subnet, free) in subnets.iter().zip([1019, 251, 251, 59]) {
        addresses.found(&subnet.id, free);
    }
    addresses
}

/// Why nothing is launched.
#[derive(Debug)]
pub enum Refused {
    Choice(ChoiceError),
    Template(LaunchError),
}

impl Refused {
    /// What upstream's error must contain.
    fn of_upstream(&self) -> String {
        match self {
            Refused::Choice(error) => error.to_string(),
            // Which of the two is said first differs where both hold.
            Refused::Template(LaunchError::NoImageFits(_) | LaunchError::NoPlace) => {
                "getting launch template configs".to_owned()
            }
            Refused::Template(error) => panic!("{error}"),
        }
    }
}

pub fn launch(
    scenario: &Scenario,
    claim: &NodeClaim,
    wanted: &Wanted,
    unavailable: &Unavailable,
    addresses: &mut Addresses,
    came: &Value,
) -> Result<Ours, Refused> {
    let class = scenario.class(&claim.spec.node_class_ref.name);
    let types = scenario.types(&class, unavailable);
    let cluster = scenario.cluster();
    let tags = tags::launch(&class, claim.node_pool().unwrap_or_default(), &cluster.name).unwrap();
    let context = Context {
        class: &class,
        claim,
        cluster: &cluster,
        region: "us-west-2",
        tags: &tags,
        reserved_capacity: true,
    };
    let choice = choose(&types, wanted, false).map_err(Refused::Choice)?;
    let made = templates(&context, &choice).map_err(Refused::Template)?;
    let chosen = addresses.choose(&class.status.as_ref().unwrap().subnets, &choice.candidates);
    let (request, asked) = fleet(&context, &choice, &made, &chosen).map_err(Refused::Template)?;
    assert_eq!(asked.places.len(), places(&json!(request)).len());
    Ok(Ours {
        chosen,
        templates: made
            .iter()
            .map(|template| on_the_wire(&template.request))
            .collect(),
        fleet: on_the_wire(&request),
        request,
        claim: launched(&context, &choice, &made, came),
    })
}

/// The claim, without types that our catalogue lacks: upstream chose from the whole of moto's.
pub fn wanted(scenario: &Scenario, claim: &NodeClaim, expected: Option<&Value>) -> Wanted {
    let mut wanted = Wanted::of(claim).unwrap();
    if scenario.name == "many-types" {
        let names: BTreeSet<String> = places(expected.unwrap())
            .iter()
            .map(|place| place["InstanceType"].as_str().unwrap().to_owned())
            .collect();
        wanted.requirements.add(spokeshave_model::Requirement::one_of(
            spokeshave_model::labels::INSTANCE_TYPE,
            names,
        ));
    }
    wanted
}

/// Takes places out of upstream's fleet whose types our catalogue lacks, and templates that then have none.
fn in_our_catalogue(fleet: &Value) -> Value {
    let catalog = catalog("../catalog.json");
    let mut fleet = fleet.clone();
    let configs = fleet["LaunchTemplateConfigs"].as_array_mut().unwrap();
    for config in configs.iter_mut() {
        let places = config["Overrides"].as_array_mut().unwrap();
        places.retain(|place| {
            let name = place["InstanceType"].as_str().unwrap();
            catalog.region.types.contains_key(name)
        });
    }
    configs.retain(|config| !oracle::list(config, "Overrides").is_empty());
    fleet
}

pub fn ran_out(launch: &Value) -> Unavailable {
    let mut unavailable = Unavailable::default();
    for text in launch["unavailable"]["offerings"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let mut parts = text.as_str().unwrap().split(':');
        let key = OfferingKey {
            capacity_type: parts.next().unwrap().parse::<CapacityType>().unwrap(),
            instance_type: parts.next().unwrap().to_owned(),
            zone: parts.next().unwrap().to_owned(),
            placement_group: None,
        };
        unavailable.offering(key, Timestamp::UNIX_EPOCH);
    }
    unavailable
}

#[test]
fn a_017_a_065_a_068_a_073_launches_ask_for_what_upstream_asks_for() {
    // Launches for which ours makes fewer templates.
    let listed = oracle::differences("launch");
    let mut compared = 0;
    let scenarios = scenarios();
    for name in &scenarios {
        let scenario = Scenario::read(name);
        let claims = scenario.objects::<NodeClaim>("NodeClaim");
        let all_templates = scenario.requests("CreateLaunchTemplate");
        let mut unavailable = Unavailable::default();
        let mut addresses = free_addresses(&scenario.class(&claims[0].spec.node_class_ref.name));
        for (claim, launch_expected) in claims.iter().zip(oracle::list(&scenario.expected, "launches")) {
            let label = format!("{name}/{}", claim.name());
            let fleets = match scenario.expected.get("concurrent") {
                Some(_) => scenario.requests("CreateFleet"),
                None => requests_of(launch_expected, "CreateFleet"),
            };
            let wanted = wanted(&scenario, claim, fleets.first());
            let came = &launch_expected["node_claim"];
            let ours = launch(&scenario, claim, &wanted, &unavailable, &mut addresses, came);
            let ours = match ours {
                Ok(ours) => ours,
                Err(refused) => {
                    let expected = launch_expected["error"]["text"].as_str().unwrap_or_default();
                    assert!(
                        expected.contains(&refused.of_upstream()),
                        "{label}: {expected:?} {refused:?}"
                    );
                    assert!(fleets.is_empty(), "{label}");
                    continue;
                }
            };
            let family = scenario
                .class(&claim.spec.node_class_ref.name)
                .resolved_ami_family();
            let theirs = contents(&all_templates, family.as_str());
            let expected: Vec<Value> = fleets
                .iter()
                .map(|fleet| with_contents(&one_instance(&in_our_catalogue(fleet)), &theirs))
                .collect();
            let actual = with_contents(&ours.fleet, &contents(&ours.templates, family.as_str()));
            assert!(
                expected.contains(&actual),
                "{label}:\n{actual:#}\nupstream:\n{:#}",
                json!(expected)
            );
            let made = requests_of(launch_expected, "CreateLaunchTemplate").len();
            let is_counted = name != "many-types" && !name.starts_with(GENERATED);
            if scenario.expected.get("concurrent").is_none() && made > 0 && is_counted {
                let fewer = ours.templates.len() < made;
                assert_eq!(fewer, listed.contains_key(&label), "{label}");
            }
            let zone = &came["metadata"]["labels"]["topology.kubernetes.io/zone"];
            let used = zone.as_str().and_then(|zone| ours.chosen.subnet(zone));
            let used: BTreeSet<&str> = used.iter().map(|subnet| subnet.id.as_str()).collect();
            addresses.settle(&ours.chosen, &used);
            unavailable = ran_out(launch_expected);
            compared += 1;
        }
    }
    if scenarios.iter().any(|name| name.starts_with(GENERATED)) {
        assert!(compared > 0, "{scenarios:?}: nothing was launched");
    } else {
        assert_eq!(compared, 24);
    }
}

pub fn requests_of(launch: &Value, action: &str) -> Vec<Value> {
    let requests = launch["requests"].as_array().into_iter().flatten();
    requests
        .filter(|request| request["action"] == action)
        .map(|request| request["parameters"].clone())
        .collect()
}

/// Upstream's batcher asks for several instances at once.
fn one_instance(fleet: &Value) -> Value {
    let mut fleet = fleet.clone();
    fleet["TargetCapacitySpecification"]["TotalTargetCapacity"] = json!("1");
    fleet
}

#[test]
fn a_074_equal_launches_fit_into_one_fleet() {
    let scenario = Scenario::read("concurrent");
    let claims = scenario.objects::<NodeClaim>("NodeClaim");
    let fleets: Vec<FleetRequest> = claims
        .iter()
        .map(|claim| {
            let wanted = Wanted::of(claim).unwrap();
            let mut addresses = free_addresses(&scenario.class("default"));
            let unavailable = Unavailable::default();
            let ours = launch(
                &scenario,
                claim,
                &wanted,
                &unavailable,
                &mut addresses,
                &Value::Null,
            );
            ours.unwrap().request
        })
        .collect();
    let same = fleets
        .iter()
        .filter(|fleet| fleet.is_same_but_for_count(&fleets[0]))
        .count();
    assert_eq!(same, 5, "five equal claims and another one");
    let mut several = fleets[0].clone();
    several.target_capacity_specification.total_target_capacity = 5;
    assert!(several.is_same_but_for_count(&fleets[0]));
}

#[test]
fn a_035_dry_runs_ask_what_upstream_asks() {
    let mut compared = 0;
    for name in ["simple", "everything", "bottlerocket", "windows-custom"] {
        let scenario = Scenario::read(name);
        let pools = scenario.objects::<NodePool>("NodePool");
        for found in oracle::list(&scenario.expected, "node_classes") {
            let class = scenario.class(found["name"].as_str().unwrap());
            let label = format!("{name}/{}", class.name());
            let types = scenario.types(&class, &Unavailable::default());
            let cluster = scenario.cluster();
            let tags: Tags = tags::launch(&class, "", &cluster.name).unwrap();
            let claim = NodeClaim::new("rehearsal", NodeClaimSpec::default());
            let context = Context {
                class: &class,
                claim: &claim,
                cluster: &cluster,
                region: "us-west-2",
                tags: &tags,
                reserved_capacity: true,
            };
            let family = class.resolved_ami_family();
            let of_pools: Vec<Requirements> = pools
                .iter()
                .filter(|pool| pool.spec.template.spec.node_class_ref.name == class.name())
                .filter(|_| !family.as_str().starts_with("Windows"))
                .map(|pool| Requirements::from_api(&pool.spec.template.spec.requirements).unwrap())
                .collect();
            let choice = rehearsal::choose(&class, &types, &of_pools).unwrap();
            let made = templates(&context, &choice).unwrap();
            assert_eq!(made.len(), 1, "{label}");
            let (fleet, instances) = rehearsal::requests(&context, &made[0]).unwrap();
            let theirs = contents(&requests_of(found, "CreateLaunchTemplate"), family.as_str());
            let mut request = made[0].request.clone();
            if of_pools.is_empty() {
                // Upstream rehearses with a type of which it knows the name alone, and so with room for no pods.
                let data = &mut request.launch_template_data.user_data;
                *data = data.replace("--max-pods=110", "--max-pods=0");
                *data = data.replace("--max-pods=29", "--max-pods=0");
                *data = data.replace("maxPods: 29", "maxPods: 0");
            }
            let ours = contents(&[on_the_wire(&request)], family.as_str());
            let expected = &requests_of(found, "CreateFleet")[0];
            assert_eq!(
                with_contents(&on_the_wire(&fleet), &ours),
                with_contents(expected, &theirs),
                "{label}"
            );
            let mut expected = written(&requests_of(found, "RunInstances")[0]);
            let mut actual = written(&on_the_wire(&instances[0]));
            for run in [&mut expected, &mut actual] {
                run["LaunchTemplate"]["LaunchTemplateName"] = Value::Null;
            }
            assert_eq!(actual, expected, "{label}");
            compared += 1;
        }
    }
    assert_eq!(compared, 7);
}
