//! What all calls have in common: tokens, patience, pages, places (Z-024, Z-035, Z-036, Z-057, Z-058).

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use spokeshave_api::{AKSNodeClass, AKSNodeClassSpec};
use spokeshave_azure_cloud::{AzureProvider, Endpoints, Http, Outside, Request, Response};
use spokeshave_azure_simulated::{Azure, Options};
use spokeshave_model::PriceFeed;
use spokeshave_ports::{CloudError, CloudProvider as _, TokioClock};

use crate::world::{World, on_demand, pool, provider_options, with_aks};

const LOGIN: &str = "POST /tenant/oauth2/v2.0/token";

#[tokio::test(start_paused = true)]
async fn z_057_a_token_is_renewed_before_it_ends() {
    let world = World::new(Options::instant()).await;
    assert_eq!(world.asked(LOGIN), 1, "all calls of the start share one");
    world.pass(54 * 60).await;
    assert_eq!(world.asked(LOGIN), 1);
    world.pass(12 * 60).await;
    assert_eq!(world.asked(LOGIN), 2, "five minutes before its end");
    let refused = world
        .azure
        .log()
        .iter()
        .filter(|line| line.ends_with("→ 401"))
        .count();
    assert_eq!(refused, 0);
}

#[tokio::test(start_paused = true)]
async fn z_057_a_token_that_is_refused_is_exchanged_once() {
    let world = World::new(Options::instant()).await;
    world.azure.revoke_tokens();
    world
        .provider
        .create(&on_demand("a", "Standard_D4s_v5"))
        .await
        .unwrap();
    assert_eq!(world.asked(LOGIN), 2);
}

#[tokio::test(start_paused = true)]
async fn z_057_a_wrong_tenant_client_or_assertion_is_named() {
    for (change, expected) in [
        ("tenant", "AADSTS90002"),
        ("client", "AADSTS700016"),
        ("assertion", "AADSTS700024"),
    ] {
        // The provider is told what the options say, and Azure knows something else.
        let mut world = World::without_leader(Options::instant());
        let options = crate::world::provider_options(&Options::instant());
        let mut other = Options::instant();
        match change {
            "tenant" => other.tenant = "other".to_owned(),
            "client" => other.client_id = "other".to_owned(),
            _ => {}
        }
        let azure = spokeshave_azure_simulated::Azure::new(other, world.clock.clone());
        let shown = std::sync::Arc::new(Shown(if change == "assertion" {
            "stale"
        } else {
            "assertion"
        }));
        let outside = spokeshave_azure_cloud::Outside {
            http: std::sync::Arc::new(azure),
            assertion: shown,
        };
        world.provider = spokeshave_azure_cloud::AzureProvider::new(outside, world.clock.clone(), options);
        let class = world.class("class", AKSNodeClassSpec::default()).await;
        let text = serde_json::to_string(&class.status).unwrap();
        assert!(text.contains(expected), "{change}: {text}");
        let error = world.provider.list().await.unwrap_err().to_string();
        assert!(error.contains(expected), "{change}: {error}");
        assert!(
            error.contains("tenant \"tenant\" as client \"client\""),
            "{change}: {error}"
        );
    }
}

#[derive(Debug)]
struct Shown(&'static str);

impl spokeshave_azure_cloud::Assertion for Shown {
    fn token(&self) -> Result<String, String> {
        Ok(self.0.to_owned())
    }
}

#[tokio::test(start_paused = true)]
async fn z_036_throttled_calls_wait_as_long_as_arm_says() {
    let world = World::new(Options::instant()).await;
    world.azure.throttle(2, 7);
    let before = world.clock.now();
    world.provider.list().await.unwrap();
    assert_eq!(world.clock.now().duration_since(before).as_secs(), 14);
    // A wait that is too long is the caller's.
    world.azure.throttle(1, 600);
    let before = world.clock.now();
    let error = world.provider.list().await.unwrap_err();
    assert!(error.to_string().contains("HTTP 429, TooManyRequests"), "{error}");
    assert_eq!(world.clock.now(), before);
    // Until then nothing like it is asked.
    let asked = world.azure.log().len();
    let error = world.provider.list().await.unwrap_err().to_string();
    assert!(
        error.contains("HTTP 429, TooManyRequests") && error.contains("it is not asked"),
        "{error}"
    );
    assert_eq!(world.azure.log().len(), asked);
    world.pass(600).await;
    world.provider.list().await.unwrap();
    // Nobody waits for years.
    world.azure.throttle(1, u32::MAX);
    world.provider.list().await.unwrap_err();
    world.pass(600).await;
    world.provider.list().await.unwrap();
}

/// A machine costs money until it ends, whatever else ARM has too many calls of.
#[tokio::test(start_paused = true)]
async fn z_036_machines_end_while_reads_of_images_and_launches_are_throttled() {
    for options in [Options::instant(), with_aks(Options::instant())] {
        let world = World::new(options).await;
        let claims = ["a", "b", "c"].map(|name| on_demand(name, "Standard_D4s_v5"));
        let first = world.provider.create(&claims[0]).await.unwrap();
        let second = world.provider.create(&claims[1]).await.unwrap();
        // What was read of images does not hold any more.
        world.pass(121).await;
        world.azure.throttle(1, 600);
        let class = world.class("other", AKSNodeClassSpec::default()).await;
        let status = serde_json::to_string(&class.status).unwrap();
        assert!(status.contains("HTTP 429, TooManyRequests"), "{status}");
        world.provider.delete(&first).await.unwrap();
        world.azure.throttle_writes(600);
        let error = world.provider.create(&claims[2]).await.unwrap_err().to_string();
        assert!(error.contains("HTTP 429, TooManyRequests"), "{error}");
        world.provider.delete(&second).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn z_035_operations_are_asked_about_no_sooner_than_arm_wants() {
    let world = World::new(Options::slow()).await;
    let operations =
        "GET /subscriptions/sub/providers/Microsoft.Compute/locations/southcentralus/operations/";
    world
        .provider
        .create(&on_demand("a", "Standard_D4s_v5"))
        .await
        .unwrap();
    let before = world.asked(operations);
    world.pass(30).await;
    let asked = world.asked(operations) - before;
    assert!((4..=7).contains(&asked), "every five seconds: {asked}");
    world.pass(120).await;
    let after = world.asked(operations);
    world.pass(120).await;
    assert_eq!(
        world.asked(operations),
        after,
        "one that is over is not asked about"
    );
}

#[tokio::test(start_paused = true)]
async fn z_024_all_pages_are_read() {
    let world = World::new(Options::instant()).await;
    let types = world.provider.instance_types(&pool()).await.unwrap();
    assert_eq!(types.len(), 68, "three pages of sizes");
    let spot = |name: &str| {
        let it = types.iter().find(|it| it.name == name).unwrap();
        it.price_of("0", "spot").unwrap().to_string()
    };
    assert_eq!(
        spot("Standard_D4s_v5"),
        "0.04",
        "not the low priority price, from the first pages"
    );
    assert_eq!(spot("Standard_NC6s_v3"), "0.06", "from the last one");
    assert!(world.asked("GET /api/retail/prices") >= 3);
    assert!(matches!(world.provider.price_feed(), PriceFeed::Since(_)));
}

/// Core takes another allocation for a change, and makes its Snapshot anew.
#[tokio::test(start_paused = true)]
async fn z_024_however_many_classes_there_are_each_keeps_its_list() {
    let world = World::new(Options::instant()).await;
    let mut pools = Vec::new();
    for number in 0..70 {
        let name = format!("class-{number}");
        let spec = AKSNodeClassSpec {
            max_pods: Some(30 + number),
            ..AKSNodeClassSpec::default()
        };
        world.provider.put_class(AKSNodeClass::new(&name, spec));
        let mut of_class = pool();
        of_class.spec.template.spec.node_class_ref.name = name;
        pools.push(of_class);
    }
    let look = async || {
        let mut lists = Vec::new();
        for pool in &pools {
            lists.push(world.provider.instance_types(pool).await.unwrap());
        }
        lists
    };
    let before = look().await;
    world.pass(5).await;
    let after = look().await;
    let same = before.iter().zip(&after);
    let same = same.filter(|(before, after)| Arc::ptr_eq(before, after));
    assert_eq!(same.count(), pools.len());
}

/// However many classes there are, a gallery is asked once; and again for the next look.
#[tokio::test(start_paused = true)]
async fn z_012_classes_share_what_galleries_say() {
    const GALLERY: &str =
        "GET /subscriptions/sub/providers/Microsoft.Compute/locations/southcentralus/communityGalleries/";
    let world = World::new(Options::instant()).await;
    let look = async || {
        let mut images = Vec::new();
        for number in 0..20 {
            let class = world
                .class(&format!("class-{number}"), AKSNodeClassSpec::default())
                .await;
            images.push(class.status.unwrap().images[0].id.clone());
        }
        images.dedup();
        images
    };
    world.pass(180).await;
    let before = world.asked(GALLERY);
    let first = look().await;
    assert_eq!(first.len(), 1);
    assert_eq!(
        world.asked(GALLERY) - before,
        3,
        "one question for each definition"
    );
    world.azure.publish_image("202609.1.0");
    assert_eq!(look().await, first, "within two minutes the answer holds");
    world.pass(121).await;
    assert_ne!(look().await, first);
    assert_eq!(world.asked(GALLERY) - before, 6);
    // An answer that did not come is no answer: the next look asks again.
    world.pass(121).await;
    world.azure.throttle(4, 1);
    world.class("other", AKSNodeClassSpec::default()).await;
    assert_ne!(look().await, first);
    assert!(world.asked(GALLERY) - before >= 9);
}

#[tokio::test(start_paused = true)]
async fn z_058_a_denied_action_is_named_and_not_repeated() {
    let world = World::new(Options::instant()).await;
    world.azure.deny("PUT microsoft.network/networkinterfaces");
    let error = world
        .provider
        .create(&on_demand("a", "Standard_D4s_v5"))
        .await
        .unwrap_err();
    assert!(matches!(error, CloudError::Other(_)), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("HTTP 403, AuthorizationFailed")
            && text.contains("PUT microsoft.network/networkinterfaces"),
        "{text}"
    );
    assert_eq!(world.asked("PUT"), 1);
}

const PRICES: &str = "https://prices.example";

/// An Azure of which each part has a host of its own. What was asked where is written down.
#[derive(Debug)]
struct Parts {
    azure: Azure,
    asked: Mutex<BTreeSet<String>>,
    logins: Mutex<Vec<String>>,
}

impl Http for Parts {
    fn send(&self, mut request: Request) -> BoxFuture<'_, Result<Response, String>> {
        let after = request.url.find("://").map_or(0, |at| at + 3);
        let path = request.url[after..]
            .find('/')
            .map_or(request.url.len(), |at| after + at);
        let (host, path) = request.url.split_at(path);
        let is_of_prices = path.starts_with("/api/retail/prices");
        let part = match path {
            _ if is_of_prices => "prices",
            _ if path.contains("/oauth2/") => "token",
            _ => "resources",
        };
        self.asked.lock().unwrap().insert(format!("{part} at {host}"));
        if part == "token" {
            let body = String::from_utf8(request.body.clone()).unwrap();
            self.logins.lock().unwrap().push(body);
        }
        request.url = format!("https://arm.example{path}");
        Box::pin(async move {
            let mut reply = self.azure.send(request).await?;
            if is_of_prices {
                let body = String::from_utf8(reply.body).unwrap();
                reply.body = body.replace("https://arm.example", PRICES).into_bytes();
            }
            Ok(reply)
        })
    }
}

#[tokio::test(start_paused = true)]
async fn z_058_each_part_of_azure_is_where_the_settings_say() {
    let clock = TokioClock::new("2026-09-01T00:00:00Z".parse().unwrap(), 1.0).shared();
    let mut options = Options::instant();
    options.base = "https://arm.example".to_owned();
    let azure = Azure::new(options.clone(), clock.clone());
    let parts = Arc::new(Parts {
        azure: azure.clone(),
        asked: Mutex::default(),
        logins: Mutex::default(),
    });
    let outside = Outside {
        http: parts.clone(),
        assertion: Arc::new(azure.clone()),
    };
    let mut settings = provider_options(&options);
    settings.endpoints = Endpoints {
        resource_manager: "https://arm.example".to_owned(),
        login: "https://login.example".to_owned(),
        audience: "https://audience.example".to_owned(),
        prices: PRICES.to_owned(),
    };
    let provider = AzureProvider::new(outside, clock.clone(), settings);
    let follower = provider.clone();
    let following = tokio::spawn(async move { follower.follow().await });
    clock.sleep(Duration::from_secs(15)).await;
    let class = AKSNodeClass::new("class", AKSNodeClassSpec::default());
    let class = provider.reconcile_class(&class, Some("v1.34.1"), true).await.0;
    provider.put_class(class);
    let created = provider.create(&on_demand("a", "Standard_D4s_v5")).await.unwrap();
    provider.delete(&created).await.unwrap();
    following.abort();
    let asked: Vec<String> = parts.asked.lock().unwrap().iter().cloned().collect();
    assert_eq!(
        asked,
        [
            "prices at https://prices.example",
            "resources at https://arm.example",
            "token at https://login.example"
        ]
    );
    let logins = parts.logins.lock().unwrap();
    assert!(
        !logins.is_empty()
            && logins
                .iter()
                .all(|body| body.contains("scope=https%3A%2F%2Faudience.example%2F.default")),
        "{logins:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn z_014_a_subnet_that_does_not_exist_is_named_in_the_status() {
    let world = World::new(Options::instant()).await;
    let missing = "/subscriptions/sub/resourceGroups/net/providers/Microsoft.Network/virtualNetworks/cluster/subnets/none";
    let spec = AKSNodeClassSpec {
        vnet_subnet_id: Some(missing.to_owned()),
        ..AKSNodeClassSpec::default()
    };
    let class: AKSNodeClass = world.class("other", spec).await;
    let conditions = class.status.unwrap().conditions;
    let subnets = conditions.iter().find(|it| it.type_ == "SubnetsReady").unwrap();
    assert_eq!(
        (subnets.status.as_str(), subnets.reason.as_str()),
        ("False", "SubnetNotFound")
    );
    assert!(subnets.message.contains(missing));
}
