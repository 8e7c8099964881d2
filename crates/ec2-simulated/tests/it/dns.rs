//! Where nodes resolve names, and whether they get IPv6: by the address of the Service `kube-system/kube-dns`, as upstream does it.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, PostParams};
use serde_json::json;
use spokeshave_api::labels;
use spokeshave_aws_cloud::AwsProvider;
use spokeshave_ec2_simulated::Options;
use spokeshave_ports::{CloudError, CloudProvider as _};

use crate::world::{CLUSTER, World, claim};

const IPV4: &str = "172.20.0.10";
const IPV6: &str = "fd12:3456:789a::a";

/// Makes the Service of the cluster's DNS.
async fn serve_dns(world: &World, address: &str) {
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "kube-dns"}, "spec": {
        "clusterIP": address, "selector": {"k8s-app": "kube-dns"}, "ports": [{"name": "dns", "port": 53, "protocol": "UDP"}]}});
    let service: Service = serde_json::from_value(service).unwrap();
    let services: Api<Service> = Api::namespaced(world.client.clone(), "kube-system");
    services.create(&PostParams::default(), &service).await.unwrap();
}

/// Launches a NodeClaim: the address of the DNS service in its user data, and how many IPv6 addresses its network interface gets.
async fn launched(world: &World, provider: &AwsProvider, name: &str) -> (Option<&'static str>, Option<i32>) {
    let before = world.cloud.templates();
    let wanted = claim(name, &[(labels::INSTANCE_TYPE, &["m5.large"])]);
    let made = provider.create(&wanted).await;
    made.unwrap_or_else(|error| panic!("{name}: {error}"));
    let templates = world.cloud.templates();
    let made = templates.iter().find(|template| !before.contains(template));
    let template = world.cloud.template(made.unwrap()).unwrap();
    let [interface] = &template.network_interfaces[..] else {
        panic!("{:?}", template.network_interfaces);
    };
    assert_eq!(interface.primary_ipv6, interface.ipv6_address_count.map(|_| true));
    let mut addresses = [IPV4, IPV6].into_iter();
    let told = addresses.find(|address| template.user_data.contains(*address));
    (told, interface.ipv6_address_count)
}

#[tokio::test(start_paused = true)]
async fn a_068_a_069_the_address_of_kube_dns_decides_between_ipv4_and_ipv6() {
    for (address, ipv6_addresses) in [(IPV4, None), (IPV6, Some(1))] {
        let world = World::new(Options::new(CLUSTER)).await;
        serve_dns(&world, address).await;
        let provider = world.provider();
        world.pass(60).await;
        let told = launched(&world, &provider, "one").await;
        assert_eq!(told, (Some(address), ipv6_addresses));
    }
}

#[tokio::test(start_paused = true)]
async fn a_120_a_setting_goes_before_the_service() {
    let world = World::new(Options::new(CLUSTER)).await;
    serve_dns(&world, IPV4).await;
    let set: IpAddr = IPV6.parse().unwrap();
    let provider = world.provider_set(|options| options.cluster_dns = Some(set));
    world.pass(60).await;
    assert_eq!(launched(&world, &provider, "one").await, (Some(IPV6), Some(1)));
}

/// A cluster without the Service, or with a role that must not read it, or in which it has no address, launches nodes all the same.
#[tokio::test(start_paused = true)]
async fn a_069_without_an_address_nodes_are_launched_with_none_until_there_is_one() {
    for refusal in [0, 403] {
        let world = World::new(Options::new(CLUSTER)).await;
        world.refuse_dns(refusal);
        let provider = world.provider();
        world.pass(60).await;
        assert_eq!(
            launched(&world, &provider, "one").await,
            (None, None),
            "{refusal}"
        );
        serve_dns(&world, IPV6).await;
        world.refuse_dns(0);
        world.pass(600).await;
        let told = launched(&world, &provider, "two").await;
        assert_eq!(told, (Some(IPV6), Some(1)), "{refusal}");
    }
    let world = World::new(Options::new(CLUSTER)).await;
    serve_dns(&world, "None").await;
    let provider = world.provider();
    world.pass(60).await;
    assert_eq!(launched(&world, &provider, "one").await, (None, None), "headless");
}

/// A node of the wrong family would never join.
#[tokio::test(start_paused = true)]
async fn a_069_nothing_is_launched_before_the_api_server_has_answered() {
    let world = World::new(Options::new(CLUSTER)).await;
    serve_dns(&world, IPV6).await;
    world.refuse_dns(500);
    let provider = world.provider();
    world.pass(60).await;
    let wanted = claim("early", &[(labels::INSTANCE_TYPE, &["m5.large"])]);
    assert!(provider.create(&wanted).await.is_err());
    world.refuse_dns(0);
    world.pass(90).await;
    assert_eq!(launched(&world, &provider, "one").await, (Some(IPV6), Some(1)));
}

/// Whoever has followed the market knows the types already when it begins to lead.
#[tokio::test(start_paused = true)]
async fn a_069_nothing_is_launched_before_it_either_where_the_market_is_known() {
    let world = World::new(Options::new(CLUSTER)).await;
    serve_dns(&world, IPV6).await;
    let _leader = world.provider();
    world.pass(60).await;
    world.refuse_dns(500);
    let provider = world.reading_provider(|_| {});
    world.pass(60).await;
    let wanted = claim("early", &[(labels::INSTANCE_TYPE, &["m5.large"])]);
    let said = provider.create(&wanted).await.expect_err("no address yet");
    let expected = "the address of the DNS service is not known yet";
    assert_eq!(said, CloudError::Other(expected.to_owned()));
    world.refuse_dns(0);
    world.pass(90).await;
    assert_eq!(launched(&world, &provider, "one").await, (Some(IPV6), Some(1)));
}
