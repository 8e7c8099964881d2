//! What goes wrong between the steps of a launch: a token that ends, calls that are throttled, a network interface that stays (Z-033, Z-036, Z-051, Z-057).

use std::sync::{Arc, Mutex};

use spokeshave_api::AKSNodeClassSpec;
use spokeshave_azure_cloud::{Assertion, AzureProvider, Outside};
use spokeshave_azure_simulated::{Options, Refusal};
use spokeshave_ports::{CloudError, CloudProvider as _};

use crate::world::{World, on_demand, provider_options, with_aks};

const SIZE: &str = "Standard_D4s_v5";
const LOGIN: &str = "POST /tenant/oauth2/v2.0/token";
const INTERFACES: &str =
    "/subscriptions/sub/resourceGroups/Nodes/providers/Microsoft.Network/networkInterfaces";
const MACHINES: &str = "/subscriptions/sub/resourceGroups/Nodes/providers/Microsoft.Compute/virtualMachines";

fn refusal(code: &str) -> Refusal {
    Refusal {
        status: Some(400),
        code: code.to_owned(),
        message: "no".to_owned(),
        ..Refusal::default()
    }
}

fn unauthorized(world: &World) -> usize {
    let log = world.azure.log();
    log.iter().filter(|line| line.ends_with("→ 401")).count()
}

/// A launch on an Azure that takes its time lasts as long as its interface takes, ten seconds: the token ends in each of them, earlier than Azure had said.
#[tokio::test(start_paused = true)]
async fn z_057_a_token_that_ends_in_the_middle_of_a_launch_is_exchanged_and_the_launch_goes_on() {
    let mut in_the_middle = 0;
    for second in 0..15 {
        let world = World::new(Options::slow()).await;
        world.azure.end_tokens_in(second);
        let begun = world.clock.now();
        world.provider.create(&on_demand("a", SIZE)).await.unwrap();
        assert_eq!(world.machines().len(), 1, "{second}");
        assert_eq!(world.azure.interfaces(), ["aks-a"], "{second}");
        let refused = unauthorized(&world);
        assert!(
            refused <= 1,
            "{second}: {refused} calls with a token that has ended"
        );
        let exchanged = world.asked(LOGIN) - 1;
        assert_eq!(
            exchanged, refused,
            "{second}: a token that is refused is exchanged once"
        );
        in_the_middle += exchanged;
        let took = world.clock.now().duration_since(begun).as_secs();
        assert!(took <= 12, "{second}: no wait for the token, {took} s");
        let launched = |path: &str| {
            let log = world.azure.log();
            let start = format!("PUT {path}/aks-a → 20");
            log.iter().filter(|line| line.starts_with(&start)).count()
        };
        assert_eq!((launched(INTERFACES), launched(MACHINES)), (1, 1), "{second}");
    }
    assert!(
        (8..15).contains(&in_the_middle),
        "{in_the_middle} ended in the middle"
    );
}

#[tokio::test(start_paused = true)]
async fn z_040_z_057_so_is_one_where_aks_makes_the_machine() {
    for second in 0..10 {
        let world = World::new(with_aks(Options::slow())).await;
        world.azure.end_tokens_in(second);
        world.provider.create(&on_demand("a", SIZE)).await.unwrap();
        world.pass(60).await;
        assert_eq!(world.azure.aks_machines().len(), 1, "{second}");
        assert_eq!((unauthorized(&world), world.asked(LOGIN)), (1, 2), "{second}");
    }
}

/// The token of the service account, which is not renewed for a while.
#[derive(Debug)]
struct Held(Mutex<&'static str>);

impl Assertion for Held {
    fn token(&self) -> Result<String, String> {
        Ok((*self.0.lock().unwrap()).to_owned())
    }
}

#[tokio::test(start_paused = true)]
async fn z_057_a_token_that_ends_and_cannot_be_exchanged_is_named_and_leaves_nothing() {
    let mut world = World::without_leader(Options::slow());
    let assertion = Arc::new(Held(Mutex::new("assertion")));
    let outside = Outside {
        http: Arc::new(world.azure.clone()),
        assertion: assertion.clone(),
    };
    let options = provider_options(&Options::slow());
    world.provider = AzureProvider::new(outside, world.clock.clone(), options);
    let leader = world.provider.clone();
    let leads = tokio::spawn(async move { leader.lead(Arc::new(spokeshave_ports::NoWrites)).await });
    world.pass(15).await;
    let class = world.class("class", AKSNodeClassSpec::default()).await;
    world.provider.put_class(class);

    *assertion.0.lock().unwrap() = "ended";
    world.azure.end_tokens_in(3);
    let claim = on_demand("a", SIZE);
    let error = world.provider.create(&claim).await.unwrap_err();
    assert!(
        matches!(error, CloudError::Other(_) | CloudError::Create { .. }),
        "{error:?}"
    );
    let text = error.to_string();
    assert!(
        text.contains("AADSTS700024") && text.contains("tenant \"tenant\" as client \"client\""),
        "{text}"
    );
    assert_eq!(world.machines(), []);
    assert_eq!(
        world.azure.interfaces(),
        ["aks-a"],
        "it cannot be taken back without a token"
    );
    let other = world.provider.create(&on_demand("b", SIZE)).await;
    assert!(other.unwrap_err().to_string().contains("AADSTS700024"));

    *assertion.0.lock().unwrap() = "assertion";
    world.provider.create(&on_demand("b", SIZE)).await.unwrap();
    world.pass(11 * 60).await;
    assert_eq!(world.azure.interfaces(), ["aks-b"], "it is collected");
    leads.abort();
}

/// It is renewed five minutes before its end, and does until then.
#[tokio::test(start_paused = true)]
async fn z_057_a_token_does_until_its_end_while_nobody_can_log_in() {
    let world = World::new(Options::instant()).await;
    world.azure.fail_logins();
    world.pass(57 * 60).await;
    let before = world.asked(LOGIN);
    let created = world.provider.create(&on_demand("a", SIZE)).await.unwrap();
    world.provider.delete(&created).await.unwrap();
    let asked = world.asked(LOGIN) - before;
    assert!(asked <= 2, "{asked}: not for each call");

    world.pass(3 * 60).await;
    let before = world.asked(LOGIN);
    let launches = ["b", "c", "d", "e", "f"].map(|name| {
        let provider = world.provider.clone();
        tokio::spawn(async move { provider.create(&on_demand(name, SIZE)).await })
    });
    for launch in launches {
        let error = launch.await.unwrap().unwrap_err().to_string();
        assert!(error.contains("HTTP 503, temporarily_unavailable"), "{error}");
    }
    let asked = world.asked(LOGIN) - before;
    assert!(asked <= 4, "{asked}: who waits is told what came of it");
    assert_eq!(world.machines(), []);

    world.azure.heal();
    world.provider.create(&on_demand("b", SIZE)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn z_033_z_051_an_interface_that_cannot_be_deleted_after_a_refusal_is_used_again_or_collected() {
    let world = World::new(Options::instant()).await;
    world.azure.refuse(refusal("InvalidParameter"));
    world.azure.deny("DELETE microsoft.network/networkinterfaces");
    for name in ["a", "b"] {
        let refused = world.provider.create(&on_demand(name, SIZE)).await;
        let text = refused.unwrap_err().to_string();
        assert!(
            text.contains("InvalidParameter: no"),
            "why the machine was refused, not why the interface stays: {text}"
        );
    }
    assert_eq!(world.machines(), []);
    assert_eq!(world.azure.interfaces(), ["aks-a", "aks-b"]);

    // The same NodeClaim again: its interface is there. Of the other one nobody asks again.
    world.azure.refuse_nothing();
    world.provider.create(&on_demand("a", SIZE)).await.unwrap();
    let deleted = |name: &str| world.asked(&format!("DELETE {INTERFACES}/{name} "));
    let before = (deleted("aks-a"), deleted("aks-b"));
    world.pass(31 * 60).await;
    assert_eq!(deleted("aks-a"), before.0, "the one with a machine is left alone");
    let tried = deleted("aks-b") - before.1;
    assert!(
        (4..=6).contains(&tried),
        "with each sweep, every five minutes: {tried}"
    );
    assert_eq!(world.azure.interfaces(), ["aks-a", "aks-b"]);

    world.azure.heal();
    world.pass(6 * 60).await;
    assert_eq!(world.azure.interfaces(), ["aks-a"]);
    assert_eq!(world.machines().len(), 1);
}

/// What Azure keeps for a machine that it has refused can be deleted three minutes later.
#[tokio::test(start_paused = true)]
async fn z_033_z_051_an_interface_that_azure_keeps_after_a_refusal_is_collected() {
    let world = World::new(Options::instant()).await;
    world.azure.refuse(refusal("InvalidParameter"));
    world.azure.reserve_interface("aks-a");
    let refused = world.provider.create(&on_demand("a", SIZE)).await;
    assert!(refused.unwrap_err().to_string().contains("InvalidParameter: no"));
    assert_eq!(
        (world.machines(), world.azure.interfaces()),
        (vec![], vec!["aks-a".to_owned()])
    );
    world.pass(11 * 60).await;
    assert_eq!(world.azure.interfaces(), Vec::<String>::new());
}

/// Each call more would make it take longer.
#[tokio::test(start_paused = true)]
async fn z_036_a_launch_that_is_throttled_waits_takes_nothing_back_and_goes_on_with_what_is_there() {
    let world = World::new(Options::slow()).await;
    let claim = on_demand("a", SIZE);
    let (provider, launched) = (world.provider.clone(), claim.clone());
    let launch = tokio::spawn(async move { provider.create(&launched).await });
    world.pass(2).await;
    world.azure.throttle_writes(300);
    let error = launch.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("HTTP 429, TooManyRequests"), "{error}");
    let writes = || {
        let log = world.azure.log();
        let is_write = |line: &&String| line.starts_with("PUT") || line.starts_with("DELETE");
        log.iter().filter(is_write).count()
    };
    assert_eq!(writes(), 2, "the network interface, and the machine once");
    for _ in 0..8 {
        world.pass(30).await;
        let error = world.provider.create(&claim).await.unwrap_err().to_string();
        assert!(error.contains("HTTP 429, TooManyRequests"), "{error}");
    }
    assert_eq!(writes(), 3, "network interfaces are counted by themselves");
    assert_eq!(world.azure.interfaces(), ["aks-a"]);
    world.pass(30).await;
    world.provider.create(&claim).await.unwrap();
    assert_eq!(world.machines().len(), 1);
}
