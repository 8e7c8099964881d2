//! Offerings, prices and the choice (Z-023, Z-024, Z-030).

use spokeshave_api::{NodeClaim, NodeClaimSpec};
use spokeshave_model::{CapacityType, InstanceType, Offering, Price, Requirement};
use spokeshave_provider_azure::choice::{self, Choice, ChoiceError};
use spokeshave_provider_azure::labels::SKU_STORAGE_ULTRA_SSD;
use spokeshave_provider_azure::offerings::{Quota, Usage, UsageName};
use spokeshave_provider_azure::prices::{self, Page, Prices};
use spokeshave_provider_azure::unavailable::Unavailable;

use crate::{at, class, types, types_with};

fn claim(requirements: &str) -> NodeClaim {
    let mut claim = NodeClaim::new(
        "claim",
        NodeClaimSpec {
            requirements: serde_saphyr::from_str(requirements).unwrap(),
            ..NodeClaimSpec::default()
        },
    );
    claim.metadata.uid = Some("uid-1".to_owned());
    claim
}

fn named(types: &[InstanceType], name: &str) -> InstanceType {
    types.iter().find(|it| it.name == name).unwrap().clone()
}

fn usage(family: &str, used: i64, limit: i64) -> Usage {
    Usage {
        name: UsageName {
            value: family.to_owned(),
        },
        current_value: used,
        limit,
    }
}

#[test]
fn z_023_spot_needs_the_capability_and_on_demand_needs_quota() {
    let all = types(&class("{}"));
    let available = |it: &InstanceType| -> Vec<String> {
        it.offerings
            .iter()
            .filter(|it| it.available)
            .map(|it| format!("{} {}", it.capacity_type().unwrap(), it.zone().unwrap()))
            .collect()
    };
    assert_eq!(named(&all, "Standard_B20ms").offerings.len(), 8);
    assert!(
        available(&named(&all, "Standard_B20ms"))
            .iter()
            .all(|it| it.starts_with("on-demand"))
    );
    assert_eq!(
        available(&named(&all, "Standard_NC6s_v3")),
        ["on-demand 0", "spot 0"],
        "a size without zones"
    );
    let quota = Quota::new(vec![usage("STANDARDDSV5FAMILY", 90, 100)], at(-600));
    let some = types_with(&class("{}"), &Unavailable::default(), &quota);
    assert_eq!(available(&named(&some, "Standard_D8s_v5")).len(), 8);
    let sixteen = available(&named(&some, "Standard_D16s_v5"));
    assert_eq!(sixteen.len(), 4, "{sixteen:?}");
    assert!(sixteen.iter().all(|it| it.starts_with("spot")));
    let old = Quota::new(vec![usage("standardDSv5Family", 100, 100)], at(-901));
    let open = types_with(&class("{}"), &Unavailable::default(), &old);
    assert_eq!(
        available(&named(&open, "Standard_D16s_v5")).len(),
        8,
        "what is old allows"
    );
}

#[test]
fn z_024_prices_of_the_api() {
    assert_eq!(
        prices::filter("westeurope"),
        "priceType eq 'Consumption' and currencyCode eq 'USD' and serviceFamily eq 'Compute' and serviceName eq 'Virtual Machines' and armRegionName eq 'westeurope'"
    );
    let page: Page = serde_json::from_str(include_str!("../golden/retail_prices.json")).unwrap();
    assert_eq!(
        page.next_page_link.as_deref(),
        Some("https://prices.azure.com:443/api/retail/prices?$skip=100")
    );
    let mut prices = Prices::built_in();
    let of = |prices: &Prices, size: &str| {
        [CapacityType::OnDemand, CapacityType::Spot].map(|it| prices.price(size, it).to_string())
    };
    assert_eq!(
        of(&prices, "Standard_D4s_v5"),
        ["0.192", "0.192"],
        "the table has no spot prices: they are at most those of on-demand"
    );
    let version = prices.version();
    assert!(prices.update(&page.items));
    assert_ne!(prices.version(), version);
    assert_eq!(of(&prices, "Standard_D4s_v5"), ["0.23", "0.04554"]);
    assert!(!prices.update(&page.items), "the same again changes nothing");
    assert_eq!(
        of(&prices, "Standard_D8s_v5"),
        ["0.384", "0.384"],
        "what is not named stays"
    );
    assert_eq!(
        of(&prices, "Standard_Z9"),
        ["999", "999"],
        "a size that is not known, though it has a price"
    );
    assert_eq!(
        prices.price("Standard_Nothing", CapacityType::OnDemand),
        Price::UNKNOWN
    );
    let empty: Page = serde_json::from_str(r#"{"Items": [], "NextPageLink": null}"#).unwrap();
    assert_eq!((empty.items.len(), empty.next_page_link), (0, None));
}

#[test]
fn z_030_the_cheapest_offering_with_its_ties() {
    let mut all = types(&class("{}"));
    all.retain(|it| ["Standard_D4s_v5", "Standard_D8s_v5", "Standard_E4s_v5"].contains(&it.name.as_str()));
    let chosen = |types: &[InstanceType], claim: &NodeClaim| {
        choice::choose(types, claim).map(|it| {
            (
                it.instance_type.name.clone(),
                it.capacity_type.as_str(),
                it.zone.to_owned(),
            )
        })
    };
    let (name, capacity_type, zone) = chosen(&all, &claim("[]")).unwrap();
    assert_eq!(
        (name.as_str(), capacity_type),
        ("Standard_D4s_v5", "spot"),
        "chosen before prices are read: at most as dear as on-demand"
    );
    assert_ne!(zone, "0", "a zone comes before none");
    // All of one price: spot before on-demand, still in a zone.
    for offering in all.iter_mut().flat_map(|it| &mut it.offerings) {
        offering.price = Price::from_dollars(0.1);
    }
    let (name, capacity_type, zone) = chosen(&all, &claim("[]")).unwrap();
    assert_eq!((name.as_str(), capacity_type), ("Standard_D4s_v5", "spot"));
    assert_ne!(zone, "0");
    assert_eq!(
        chosen(&all, &claim("[]")).unwrap().2,
        zone,
        "the same claim gets the same"
    );
    let zones: std::collections::BTreeSet<String> = (0..40)
        .map(|index| {
            let mut one = claim("[]");
            one.metadata.uid = Some(format!("uid-{index}"));
            chosen(&all, &one).unwrap().2
        })
        .collect();
    assert_eq!(zones.len(), 3, "claims spread over zones");
    let regional = claim("[{key: karpenter.azure.com/placement-scope, operator: In, values: [regional]}]");
    assert_eq!(chosen(&all, &regional).unwrap().2, "0");
    let family = claim("[{key: karpenter.azure.com/sku-family, operator: In, values: [E]}]");
    assert_eq!(chosen(&all, &family).unwrap().0, "Standard_E4s_v5");
    // What is not available is not chosen, and cannot be.
    for offering in all[0].offerings.iter_mut() {
        offering.available = false;
    }
    assert_eq!(chosen(&all, &claim("[]")).unwrap().0, "Standard_D8s_v5");
    let nothing = claim("[{key: karpenter.azure.com/sku-family, operator: In, values: [F]}]");
    assert_eq!(
        chosen(&all, &nothing),
        Err(ChoiceError::NothingAvailable("claim".to_owned()))
    );
    let wrong = claim("[{key: karpenter.azure.com/sku-cpu, operator: Gt, values: [many]}]");
    let error = chosen(&all, &wrong).unwrap_err().to_string();
    assert!(error.starts_with("NodeClaim claim, spec.requirements"), "{error}");
}

/// They cost something also where none is attached.
#[test]
fn z_030_ultra_disks_are_for_claims_that_allow_no_machine_without() {
    let d4 = named(&types(&class("{}")), "Standard_D4s_v5");
    let without = &d4.offerings[0];
    let mut with = without.clone();
    let both = Requirement::one_of(SKU_STORAGE_ULTRA_SSD, ["false", "true"]);
    with.requirements.replace(both);
    let asks = |operator: &str, values: &str, offering: &Offering| {
        let choice = Choice {
            instance_type: &d4,
            offering,
            capacity_type: CapacityType::OnDemand,
            zone: "southcentralus-1",
        };
        let key = SKU_STORAGE_ULTRA_SSD;
        let claim = claim(&format!(
            "[{{key: {key}, operator: {operator}, values: {values}}}]"
        ));
        choice::asks_for_ultra_disks(&claim, &choice)
    };
    for (operator, values, expected) in [
        ("In", "['true']", true),
        ("NotIn", "['false']", true),
        ("In", "['true', 'false']", false),
        ("In", "['false']", false),
        ("NotIn", "['true']", false),
        ("Exists", "[]", false),
        ("DoesNotExist", "[]", false),
    ] {
        assert_eq!(asks(operator, values, &with), expected, "{operator} {values}");
        assert!(!asks(operator, values, without), "{operator} {values}");
    }
}

#[test]
fn z_030_a_size_that_is_too_small_is_not_chosen() {
    let all = types(&class("{}"));
    let mut big = claim("[{key: kubernetes.io/arch, operator: In, values: [amd64]}]");
    big.spec.resources.requests = serde_saphyr::from_str("{cpu: '15', memory: 20Gi}").unwrap();
    let chosen = choice::choose(&all, &big).unwrap();
    assert!(chosen.instance_type.allocatable().get("cpu") >= 15_000);
    assert_eq!(chosen.instance_type.name, "Standard_F16s_v2");
}
