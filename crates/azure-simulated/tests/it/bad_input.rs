//! An Azure that is stuck, talks nonsense or never comes to an end: errors by name, nothing stalls, nothing is left over (Z-033, Z-035, Z-050). Wrong tenants,
//! expired tokens, denied actions and patience are `calls`; quota and capacity are `launches`; machines that are gone and what is left over are `upkeep`.

use std::sync::{Arc, Mutex};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use spokeshave_azure_cloud::{AzureProvider, Http, Outside, Request, Response};
use spokeshave_azure_simulated::{Azure, Options};
use spokeshave_ports::{CloudError, CloudProvider as _, NoWrites, TokioClock};

use crate::world::{World, on_demand, pool, provider_options, with_aks};

#[tokio::test(start_paused = true)]
async fn z_033_z_035_a_machine_that_is_never_made_holds_nobody_up_and_can_be_ended() {
    let world = World::new(Options::slow()).await;
    world.azure.stick("microsoft.compute/virtualmachines");
    let stuck = on_demand("stuck", "Standard_D4s_v5");
    let stuck = world.provider.create(&stuck).await.unwrap();
    world.azure.heal();
    let well = world
        .provider
        .create(&on_demand("well", "Standard_D4s_v5"))
        .await
        .unwrap();
    world.pass(24 * 3600).await;
    let states: Vec<String> = world.machines().into_iter().map(|(_, state)| state).collect();
    assert_eq!(states, ["Creating", "Succeeded"]);
    let listed = world.provider.list().await.unwrap();
    assert_eq!(listed.len(), 2, "what may still come is listed");
    assert!(world.provider.interruptions().is_some());
    world.provider.delete(&stuck).await.unwrap();
    world.pass(120).await;
    let gone = world.provider.get(stuck.provider_id().unwrap()).await;
    assert!(gone.unwrap_err().is_not_found());
    let operations =
        "GET /subscriptions/sub/providers/Microsoft.Compute/locations/southcentralus/operations/";
    let before = world.asked(operations);
    world.pass(3600).await;
    assert_eq!(world.asked(operations), before, "nobody asks for it any more");
    world.provider.delete(&well).await.unwrap();
    world.pass(120).await;
    assert_eq!((world.machines().len(), world.azure.interfaces().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn z_035_an_interface_that_is_never_made_ends_the_launch_by_name_and_is_taken_back() {
    let world = World::new(Options::slow()).await;
    world.azure.stick("microsoft.network/networkinterfaces");
    let claim = on_demand("a", "Standard_D4s_v5");
    let begun = world.clock.now();
    let error = world.provider.create(&claim).await.unwrap_err();
    assert!(
        matches!(&error, CloudError::Other(it) if it.contains("OperationStuck") && it.contains("network interface")),
        "{error}"
    );
    let took = world.clock.now().duration_since(begun).as_secs();
    assert!((120..=140).contains(&took), "{took} s");
    world.pass(15).await;
    assert_eq!((world.machines().len(), world.azure.interfaces().len()), (0, 0));
    world.azure.heal();
    world.provider.create(&claim).await.unwrap();
}

type Spoil = fn(&Request, Response) -> Response;

/// An Azure whose replies are spoiled on their way.
#[derive(Debug)]
struct Spoiled {
    azure: Azure,
    how: Mutex<Option<Spoil>>,
    /// Pages that were read after the last one.
    beyond: Mutex<usize>,
}

/// What stands in the address of a page after the last one.
const BEYOND: &str = "beyond=the-end";

impl Http for Spoiled {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, String>> {
        let how = *self.how.lock().unwrap();
        if request.url.contains(BEYOND) {
            *self.beyond.lock().unwrap() += 1;
            let page =
                json!({"value": [], "Items": [{}], "nextLink": request.url, "NextPageLink": request.url});
            let reply = Response {
                status: 200,
                body: page.to_string().into_bytes(),
                ..Response::default()
            };
            return std::future::ready(Ok(reply)).boxed();
        }
        let reply = self.azure.answer(&request);
        let reply = reply.map(|reply| how.map_or(reply.clone(), |how| how(&request, reply)));
        std::future::ready(reply).boxed()
    }
}

async fn spoiled() -> (World, Arc<Spoiled>) {
    spoiled_of(Options::instant()).await
}

async fn spoiled_with_a_machine() -> (World, Arc<Spoiled>) {
    let (world, http) = spoiled().await;
    let wanted = on_demand("a", "Standard_D4s_v5");
    world.provider.create(&wanted).await.unwrap();
    world.pass(3600).await;
    (world, http)
}

async fn spoiled_of(options: Options) -> (World, Arc<Spoiled>) {
    let mut world = World::without_leader(options.clone());
    let clock = TokioClock::new("2026-09-01T00:00:00Z".parse().unwrap(), 1.0).shared();
    let azure = Azure::new(options.clone(), clock.clone());
    let http = Arc::new(Spoiled {
        azure: azure.clone(),
        how: Mutex::default(),
        beyond: Mutex::default(),
    });
    let outside = Outside {
        http: http.clone(),
        assertion: Arc::new(azure.clone()),
    };
    world.provider = AzureProvider::new(outside, clock.clone(), provider_options(&options));
    (world.azure, world.clock) = (azure, clock);
    let leads = world.provider.clone();
    tokio::spawn(async move { leads.lead(Arc::new(NoWrites)).await });
    world.pass(15).await;
    let class = world
        .class("class", spokeshave_api::AKSNodeClassSpec::default())
        .await;
    world.provider.put_class(class);
    (world, http)
}

fn body(mut reply: Response, body: &Value) -> Response {
    reply.body = body.to_string().into_bytes();
    reply
}

/// The reply without its last byte, where it has a body.
fn cut(_: &Request, mut reply: Response) -> Response {
    reply.body.pop();
    reply
}

fn proxy_page(_: &Request, mut reply: Response) -> Response {
    reply.body = b"<html>Sign in</html>".to_vec();
    reply
}

fn null(_: &Request, reply: Response) -> Response {
    body(reply, &Value::Null)
}

fn a_list(_: &Request, reply: Response) -> Response {
    body(reply, &json!([[], 1, "x"]))
}

fn numbers(_: &Request, reply: Response) -> Response {
    body(
        reply,
        &json!({"value": 1, "data": 2, "properties": 3, "access_token": 4, "status": 5, "tags": 6, "Items": 7}),
    )
}

fn nothing(_: &Request, reply: Response) -> Response {
    body(reply, &json!({}))
}

fn bytes(_: &Request, mut reply: Response) -> Response {
    reply.body = vec![0xff; 1000];
    reply
}

#[tokio::test(start_paused = true)]
async fn z_035_nonsense_is_an_error_by_name_and_nothing_is_forgotten() {
    let (world, http) = spoiled().await;
    let kept = world
        .provider
        .create(&on_demand("kept", "Standard_D4s_v5"))
        .await
        .unwrap();
    let id = kept.provider_id().unwrap();
    for (name, how) in [
        ("cut", cut as Spoil),
        ("proxy page", proxy_page),
        ("null", null),
        ("a list", a_list),
        ("numbers", numbers),
        ("nothing", nothing),
        ("bytes", bytes),
    ] {
        *http.how.lock().unwrap() = Some(how);
        let listed = world.provider.list().await;
        let error = listed.expect_err("half of a list is no list").to_string();
        assert!(
            error.starts_with("listing machines: UnreadableReply: "),
            "{name}: {error}"
        );
        let got = world.provider.get(id).await;
        // What is no machine has no tag of this cluster: it is not this one, and must not be taken for gone.
        if let Err(error) = got {
            assert!(
                matches!(error, CloudError::Timeout(_) | CloudError::Other(_)),
                "{name}: {error:?}"
            );
        }
        // Upkeep with it: sizes, prices and quota of before are kept.
        world.pass(700).await;
        let types = world.provider.instance_types(&pool()).await.unwrap();
        assert_eq!(types.len(), 68, "{name}");
        let class = world
            .class("other", spokeshave_api::AKSNodeClassSpec::default())
            .await;
        assert!(class.status.is_some(), "{name}");
        *http.how.lock().unwrap() = None;
        assert_eq!(world.provider.list().await.unwrap().len(), 1, "{name}");
    }
    world.provider.delete(&kept).await.unwrap();
    world.pass(600).await;
    assert_eq!((world.machines().len(), world.azure.interfaces().len()), (0, 0));
}

/// AKS's list of machines without the list.
fn no_machines(request: &Request, reply: Response) -> Response {
    if request.url.contains("/machines?") {
        return body(reply, &json!({}));
    }
    reply
}

#[tokio::test(start_paused = true)]
async fn z_040_z_050_a_reply_of_aks_without_a_list_is_no_empty_list() {
    let (world, http) = spoiled_of(with_aks(Options::instant())).await;
    world
        .provider
        .create(&on_demand("a", "Standard_D4s_v5"))
        .await
        .unwrap();
    world.pass(3600).await;
    *http.how.lock().unwrap() = Some(no_machines);
    let error = world.provider.list().await.unwrap_err().to_string();
    assert!(
        error.starts_with("listing machines of AKS: UnreadableReply: ") && error.contains("value"),
        "{error}"
    );
    *http.how.lock().unwrap() = None;
    assert_eq!(world.provider.list().await.unwrap().len(), 1);
}

/// A machine whose time is no time: the row cannot be read.
fn one_bad_row(request: &Request, reply: Response) -> Response {
    if !request.url.contains("Microsoft.ResourceGraph") {
        return reply;
    }
    let mut page: Value = serde_json::from_slice(&reply.body).unwrap();
    if page["data"][0]["type"] == "Microsoft.Compute/virtualMachines" {
        page["data"][0]["properties"]["timeCreated"] = json!("yesterday");
    }
    body(reply, &page)
}

#[tokio::test(start_paused = true)]
async fn z_050_a_machine_that_cannot_be_read_fails_the_list_instead_of_being_taken_for_gone() {
    let (world, http) = spoiled_with_a_machine().await;
    assert_eq!(world.provider.list().await.unwrap().len(), 1);
    *http.how.lock().unwrap() = Some(one_bad_row);
    let error = world.provider.list().await.unwrap_err().to_string();
    assert!(
        error.contains("virtualMachines/aks-a") && error.contains("cannot be read"),
        "{error}"
    );
}

/// Links to the next page for ever: of sizes and of prices.
fn no_end(request: &Request, reply: Response) -> Response {
    for (path, link) in [("/skus?", "nextLink"), ("/prices?", "NextPageLink")] {
        if request.url.contains(path) {
            let mut page: Value = serde_json::from_slice(&reply.body).unwrap();
            page[link] = json!(format!("{}&{BEYOND}", request.url));
            return body(reply, &page);
        }
    }
    reply
}

/// Tokens for the next page for ever, never the same twice in a row.
fn no_end_of_rows(request: &Request, reply: Response) -> Response {
    if !request.url.contains("Microsoft.ResourceGraph") {
        return reply;
    }
    let asked: Value = serde_json::from_slice(&request.body).unwrap();
    let is_odd = asked["options"]["$skipToken"] == "a";
    let mut page: Value = serde_json::from_slice(&reply.body).unwrap();
    page["$skipToken"] = json!(if is_odd { "b" } else { "a" });
    body(reply, &page)
}

fn of_graph(request: &Request, reply: Response, key: &str, value: Value) -> Response {
    if !request.url.contains("Microsoft.ResourceGraph") {
        return reply;
    }
    let mut page: Value = serde_json::from_slice(&reply.body).unwrap();
    page[key] = value;
    body(reply, &page)
}

/// The token that was asked with, again.
fn same_rows(request: &Request, reply: Response) -> Response {
    of_graph(request, reply, "$skipToken", json!("1"))
}

/// Rows are left out, and nothing says where to go on.
fn cut_off(request: &Request, reply: Response) -> Response {
    of_graph(request, reply, "resultTruncated", json!("true"))
}

/// One row more than the pages show.
fn one_row_short(request: &Request, reply: Response) -> Response {
    of_graph(request, reply, "totalRecords", json!(2))
}

#[tokio::test(start_paused = true)]
async fn z_050_a_list_that_comes_to_a_stop_before_its_end_is_no_whole_list() {
    let (world, http) = spoiled_with_a_machine().await;
    *http.how.lock().unwrap() = Some(same_rows);
    let error = world.provider.list().await.unwrap_err().to_string();
    let place = "https://azure.example/providers/Microsoft.ResourceGraph/resources?";
    assert!(
        error.starts_with("listing machines: UnreadableReply: ")
            && error.contains(place)
            && error.contains("expected that of the next rows"),
        "{error}"
    );
    for (how, words) in [
        (cut_off as Spoil, "Resource Graph has left rows out"),
        (one_row_short, "Resource Graph has 2 rows and has shown 1"),
    ] {
        *http.how.lock().unwrap() = Some(how);
        let error = world.provider.list().await.unwrap_err().to_string();
        assert!(
            error.starts_with("listing machines: UnreadableReply: ") && error.contains(words),
            "{error}"
        );
    }
    *http.how.lock().unwrap() = None;
    assert_eq!(world.provider.list().await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn z_024_z_050_a_list_without_an_end_is_an_error_and_what_was_known_is_kept() {
    let (world, http) = spoiled().await;
    *http.how.lock().unwrap() = Some(no_end_of_rows);
    let error = world.provider.list().await.unwrap_err().to_string();
    assert!(error.contains("no end"), "{error}");
    *http.how.lock().unwrap() = Some(no_end);
    world.pass(12 * 3600 + 60).await;
    let read = *http.beyond.lock().unwrap();
    assert!(
        read >= 2 * 1999,
        "{read} pages of both were read, and then no more"
    );
    let types = world.provider.instance_types(&pool()).await.unwrap();
    assert_eq!(types.len(), 68);
    let d4 = types.iter().find(|it| it.name == "Standard_D4s_v5").unwrap();
    assert_eq!(
        d4.price_of("0", "on-demand").unwrap().to_string(),
        "0.2",
        "of before"
    );
}
