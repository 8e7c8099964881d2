//! What the operator asks about NodeClasses whose catalogs it keeps, how often, and for how long (G-005).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use kube::api::DynamicObject;
use serde_json::json;
use spokeshave_api::NodePool;
use spokeshave_model::Price;
use spokeshave_ports::{CloudError, CloudProvider as _, NodeClassKind, SharedClock};
use spokeshave_provider_grpc::{ClientOptions, GrpcProvider, NodeClasses, Server, ServerOptions, piped};

use crate::failures::operator_of;
use crate::flawed::{Flaw, Flawed};
use crate::shed::{Shed, clock, options, pool};

/// The NodeClasses of a cluster, and how often each was asked for.
#[derive(Clone, Debug, Default)]
struct Classes {
    objects: Arc<Mutex<BTreeMap<String, DynamicObject>>>,
    asked: Arc<Mutex<BTreeMap<String, u32>>>,
}

impl Classes {
    fn set(&self, name: &str, image: &str, generation: i64) {
        let object = json!({
            "apiVersion": "shed.example/v1", "kind": "ShedClass",
            "metadata": {"name": name, "uid": "u", "generation": generation}, "spec": {"image": image},
        });
        let object = serde_json::from_value(object).expect("an object");
        self.objects
            .lock()
            .expect("no panic")
            .insert(name.to_owned(), object);
    }

    /// How often it was asked for since this was called last.
    fn asked(&self, name: &str) -> u32 {
        let mut asked = self.asked.lock().expect("no panic");
        asked.remove(name).unwrap_or_default()
    }
}

impl NodeClasses for Classes {
    fn list<'a>(&'a self, _: &'a NodeClassKind) -> BoxFuture<'a, Result<Vec<DynamicObject>, String>> {
        let objects = self.objects.lock().expect("no panic").values().cloned().collect();
        Box::pin(std::future::ready(Ok(objects)))
    }

    fn get<'a>(
        &'a self,
        _: &'a NodeClassKind,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<DynamicObject>, String>> {
        let mut asked = self.asked.lock().expect("no panic");
        *asked.entry(name.to_owned()).or_default() += 1;
        let object = self.objects.lock().expect("no panic").get(name).cloned();
        Box::pin(std::future::ready(Ok(object)))
    }
}

/// An operator of a cluster with these classes, whose provider wants image `a` in each.
async fn operator(classes: &Classes) -> (GrpcProvider, Arc<Shed>, SharedClock) {
    let clock = clock();
    let shed = Shed::new(clock.clone());
    let server = Server::new(shed.clone(), clock.clone(), ServerOptions::default());
    let provider = Flawed::new(server, Flaw::DemandsClass, clock.clone());
    let options = ClientOptions {
        node_classes: Some(Arc::new(classes.clone())),
        ..options(Arc::new(piped(provider)))
    };
    let operator = GrpcProvider::connect(options, clock.clone()).await;
    (operator.expect("a connection"), shed, clock)
}

fn pool_of(class: &str) -> NodePool {
    let mut pool = pool();
    pool.spec.template.spec.node_class_ref.name = class.to_owned();
    pool
}

#[tokio::test(start_paused = true)]
async fn g_005_a_class_that_changes_is_noticed_while_its_provider_keeps_sending() {
    let classes = Classes::default();
    classes.set("default", "a", 1);
    let (operator, shed, clock) = operator(&classes).await;
    operator.instance_types(&pool()).await.expect("types");
    let time = clock.clone();
    let sending = tokio::spawn(async move {
        for price in 1.. {
            let mut types = shed.types.lock().expect("no panic").to_vec();
            types[0].offerings[0].price = Price(price);
            *shed.types.lock().expect("no panic") = types.into();
            time.sleep(Duration::from_secs(1)).await;
        }
    });
    clock.sleep(Duration::from_secs(60)).await;
    classes.set("default", "b", 2);
    clock.sleep(Duration::from_secs(15)).await;
    let said = operator.instance_types(&pool()).await.expect_err("image b");
    assert_eq!(said, CloudError::NodeClassNotReady("spec.image is empty".into()));
    sending.abort();
}

#[tokio::test(start_paused = true)]
async fn g_005_a_class_that_becomes_ready_after_minutes_is_used_within_seconds() {
    let classes = Classes::default();
    classes.set("default", "b", 1);
    let (operator, _, clock) = operator(&classes).await;
    let said = operator.instance_types(&pool()).await.expect_err("image b");
    assert_eq!(said, CloudError::NodeClassNotReady("spec.image is empty".into()));
    clock.sleep(Duration::from_secs(95)).await;
    classes.set("default", "a", 2);
    clock.sleep(Duration::from_secs(6)).await;
    operator.instance_types(&pool()).await.expect("types");
}

#[tokio::test(start_paused = true)]
async fn g_005_a_class_that_is_not_there_is_asked_for_ever_more_rarely_and_not_at_all_once_nobody_uses_it() {
    let classes = Classes::default();
    classes.set("default", "a", 1);
    let (operator, _, clock) = operator(&classes).await;
    let kept = operator.instance_types(&pool()).await.expect("types");
    let said = operator.instance_types(&pool_of("gone")).await;
    let expected = CloudError::NodeClassNotReady("ShedClass gone does not exist".into());
    assert_eq!(said, Err(expected));
    clock.sleep(Duration::from_secs(60)).await;
    let asked = classes.asked("gone");
    assert!((2..=6).contains(&asked), "{asked} times in the first minute");
    clock.sleep(Duration::from_secs(300)).await;
    let asked = classes.asked("gone");
    assert!((5..=11).contains(&asked), "{asked} times in five minutes");
    for _ in 0..11 {
        clock.sleep(Duration::from_secs(60)).await;
        operator.instance_types(&pool()).await.expect("types");
        operator.list().await.expect("listed");
    }
    classes.asked("gone");
    clock.sleep(Duration::from_secs(300)).await;
    assert_eq!(classes.asked("gone"), 0);
    let now = operator.instance_types(&pool()).await.expect("types");
    assert!(Arc::ptr_eq(&kept, &now), "the one that is used");
    classes.set("gone", "a", 1);
    operator.instance_types(&pool_of("gone")).await.expect("types");
}

/// Many servers send nothing of a stream, headers included, before its first message.
#[tokio::test(start_paused = true)]
async fn g_005_a_catalog_whose_first_message_takes_a_minute_arrives() {
    let (operator, _, provider) = operator_of(Flaw::LateCatalog).await;
    let said = operator.instance_types(&pool()).await.expect_err("not yet");
    let said = said.to_string();
    assert!(
        said.contains("a whole catalog of ShedClass default within 30 s"),
        "{said}"
    );
    // Whoever asks for one NodePool after the other has waited once.
    let before = provider.clock.now();
    let again = operator.instance_types(&pool()).await.expect_err("not yet");
    assert_eq!((again.to_string(), provider.clock.now()), (said, before));
    provider.clock.sleep(Duration::from_secs(35)).await;
    let types = operator.instance_types(&pool()).await.expect("types");
    assert_eq!(types.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn g_005_a_catalog_that_does_not_come_is_asked_for_again_after_ten_minutes() {
    let (operator, _, provider) = operator_of(Flaw::StuckCatalog).await;
    operator.instance_types(&pool()).await.expect_err("not yet");
    provider.clock.sleep(Duration::from_secs(560)).await;
    operator.instance_types(&pool()).await.expect_err("not yet");
    provider.clock.sleep(Duration::from_secs(15)).await;
    let types = operator.instance_types(&pool()).await.expect("types");
    assert_eq!(types.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn g_002_g_005_node_classes_of_one_kind_in_two_groups_have_a_catalog_each() {
    let (operator, ..) = operator_of(Flaw::TwoGroups).await;
    let mut of_barn = pool();
    of_barn.spec.template.spec.node_class_ref.group = "barn.example".into();
    for (pool, expected) in [(pool(), 2), (of_barn, 1)] {
        let types = operator.instance_types(&pool).await.expect("types");
        assert_eq!(types.len(), expected);
    }
}
