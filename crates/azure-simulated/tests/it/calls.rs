//! What all calls have in common: tokens, patience, pages, places (Z-024, Z-035, Z-036, Z-057, Z-058).

use spokeshave_api::{AKSNodeClass, AKSNodeClassSpec};
use spokeshave_azure_simulated::Options;
use spokeshave_model::PriceFeed;
use spokeshave_ports::{CloudError, CloudProvider as _};

use crate::world::{World, on_demand, pool};

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
    world.azure.throttle(1, 600);
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

#[tokio::test(start_paused = true)]
async fn z_058_all_of_azure_is_where_the_settings_say() {
    let mut options = Options::instant();
    options.base = "http://127.0.0.1:9".to_owned();
    let world = World::new(options).await;
    world
        .provider
        .create(&on_demand("a", "Standard_D4s_v5"))
        .await
        .unwrap();
    assert_eq!(world.machines().len(), 1);
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
