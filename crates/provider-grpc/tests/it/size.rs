//! A catalog as large as the largest region's (G-006).

use spokeshave_api::{NodeClassRef, NodePool, NodePoolSpec};
use spokeshave_example as example;
use spokeshave_model::InstanceType;
use spokeshave_ports::CloudProvider as _;
use spokeshave_provider_grpc::{ServerOptions, over_pipe};

use crate::shed::{Shed, clock};

/// 1,400 types with 15,400 offerings.
fn large() -> Vec<InstanceType> {
    let zones: Vec<String> = (0..6).map(|zone| format!("zone-{zone}")).collect();
    let zones: Vec<&str> = zones.iter().map(String::as_str).collect();
    let types = (0..1400).map(|number| {
        let mut one = example::instance_type(&format!("type-{number:04}"), 1 + number % 96, 4, &zones);
        let few = one.offerings.clone();
        while one.offerings.len() < 11 {
            let mut more = few[one.offerings.len() % few.len()].clone();
            let zone = format!("zone-more-{}", one.offerings.len());
            more.requirements.replace(spokeshave_model::Requirement::is(
                spokeshave_api::labels::ZONE,
                &zone,
            ));
            one.offerings.push(more);
        }
        for key in 0..20 {
            let requirement =
                spokeshave_model::Requirement::is(&format!("shed.example/label-{key}"), "some-value");
            one.requirements.add(requirement);
        }
        one
    });
    types.collect()
}

#[tokio::test]
async fn g_006_1400_types_and_15000_offerings_arrive_whole() {
    let types = large();
    let offerings: usize = types.iter().map(|one| one.offerings.len()).sum();
    assert!(offerings >= 15_000, "{offerings}");
    let clock = clock();
    let shed = Shed::new(clock.clone());
    *shed.types.lock().expect("no panic") = types.clone().into();
    let begun = clock.now();
    let provider = over_pipe(shed, clock.clone(), ServerOptions::default())
        .await
        .expect("a connection");
    let mut pool = NodePool::new("general", NodePoolSpec::default());
    pool.spec.template.spec.node_class_ref = NodeClassRef {
        group: "shed.example".into(),
        kind: "ShedClass".into(),
        name: "default".into(),
    };
    // A chunk of 1 MiB or more would have been refused by the client.
    let received = provider.instance_types(&pool).await.expect("types");
    println!(
        "{offerings} offerings of {} types in {} ms",
        types.len(),
        clock.since(begun).as_millis()
    );
    assert!(*received == *types, "every row is what it was");
}
