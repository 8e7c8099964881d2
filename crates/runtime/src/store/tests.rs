//! Tests of the store: its rules one by one, and all together against a naive server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta, Time};
use proptest::prelude::*;

use super::*;

fn version_of(object: &ConfigMap) -> Option<u64> {
    super::version_of(&object.metadata)
}

fn replace(store: &Store<ConfigMap>, objects: Vec<ConfigMap>, rejected: BTreeMap<ObjectKey, String>) {
    store.replace(
        objects.into_iter().map(|object| store.trimmed(object)).collect(),
        rejected,
    );
}

fn object(name: &str, uid: &str, version: u64) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.into()),
            namespace: Some("x".into()),
            uid: Some(uid.into()),
            resource_version: Some(version.to_string()),
            ..ObjectMeta::default()
        },
        // Another version says something else, unless a test makes it say the same.
        data: Some([("version".to_owned(), version.to_string())].into()),
        ..ConfigMap::default()
    }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("x", name)
}

fn filled() -> Store<ConfigMap> {
    let store = Store::default();
    replace(
        &store,
        vec![object("b", "ub", 2), object("a", "ua", 1)],
        BTreeMap::new(),
    );
    store
}

fn version(store: &Store<ConfigMap>, name: &str) -> Option<u64> {
    store.get(&key(name)).as_deref().and_then(version_of)
}

#[tokio::test(start_paused = true)]
async fn ready_after_the_first_complete_list_and_in_order() {
    let store: Store<ConfigMap> = Store::default();
    assert!(!store.is_ready());
    store.apply(object("z", "uz", 1));
    assert!(!store.is_ready());
    replace(
        &store,
        vec![object("b", "ub", 2), object("a", "ua", 1)],
        BTreeMap::new(),
    );
    store.ready().await;
    assert_eq!(store.keys(), [key("a"), key("b")]);
    assert_eq!(store.in_namespace("x").len(), 2);
    assert!(store.in_namespace("").is_empty() && store.in_namespace("y").is_empty());
}

#[test]
fn handlers_and_subscriptions_hear_every_change_once_and_in_order() {
    let store = filled();
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let (log, reader) = (heard.clone(), store.clone());
    let describe = |change: &Change<ConfigMap>| {
        let side = |object: &Option<Arc<ConfigMap>>| object.as_deref().and_then(version_of).unwrap_or(0);
        format!("{} {}>{}", change.key, side(&change.old), side(&change.new))
    };
    store.on_change(move |change| {
        let visible = reader.get(&change.key).as_deref().and_then(version_of);
        assert_eq!(
            visible,
            change.new.as_deref().and_then(version_of),
            "a handler sees what it is told"
        );
        log.lock().unwrap().push(describe(change));
    });
    let mut subscription = store.subscribe();
    store.apply(object("b", "ub", 3));
    store.apply(object("b", "ub", 3));
    store.delete(&key("a"), Some("ua"), Some(4));
    replace(
        &store,
        vec![object("c", "uc", 5), object("b", "ub", 6)],
        BTreeMap::new(),
    );
    let expected = ["x/a 0>1", "x/b 0>2", "x/b 2>3", "x/a 1>0", "x/b 3>6", "x/c 0>5"];
    assert_eq!(*heard.lock().unwrap(), expected);
    let subscribed: Vec<String> = std::iter::from_fn(|| subscription.try_next())
        .map(|c| describe(&c))
        .collect();
    assert_eq!(subscribed, expected);
}

#[test]
fn a_change_tells_who_has_ended_also_when_a_list_has_a_successor_of_the_same_name() {
    let store = filled();
    let ended: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = ended.clone();
    store.on_change(move |change| {
        let uid = change.ended().and_then(|object| object.metadata.uid.clone());
        log.lock().unwrap().extend(uid);
    });
    store.apply(object("a", "ua", 3));
    assert!(ended.lock().unwrap().is_empty(), "it came, and has changed");
    replace(&store, vec![object("a", "successor", 4)], BTreeMap::new());
    assert_eq!(*ended.lock().unwrap(), ["ub", "ua"]);
}

#[test]
fn a_panicking_handler_does_not_take_the_store_with_it() {
    let store = filled();
    store.on_change(|change| assert_ne!(change.key.name, "bomb", "a bug"));
    let bombed = store.clone();
    let bomb = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        bombed.apply(object("bomb", "u", 3));
    }));
    assert!(bomb.is_err());
    store.apply(object("after", "u2", 4));
    assert_eq!(store.len(), 4);
}

#[test]
fn own_writes_are_seen_at_once_and_never_undone_by_older_news() {
    let store = filled();
    store.note_written(object("a", "ua", 10));
    assert_eq!(version(&store, "a"), Some(10));
    store.apply(object("a", "ua", 8));
    assert_eq!(version(&store, "a"), Some(10), "news from before our write");
    store.note_written(object("a", "ua", 9));
    assert_eq!(version(&store, "a"), Some(10), "an answer that came late");
    store.note_written(object("new", "un", 11));
    assert_eq!(version(&store, "new"), Some(11));
    replace(
        &store,
        vec![object("a", "ua", 10), object("b", "ub", 2)],
        BTreeMap::new(),
    );
    assert_eq!(
        version(&store, "new"),
        Some(11),
        "the list was made before our write"
    );
    replace(
        &store,
        vec![object("a", "ua", 10), object("b", "ub", 12)],
        BTreeMap::new(),
    );
    assert_eq!(
        version(&store, "new"),
        None,
        "the list was made after our write, and it is not there"
    );
}

/// Seed 9938997250094: the last Nodes of a cluster were gone before their watch had to list again, and an empty list has no versions.
#[test]
fn invariant_13_what_was_written_before_a_list_began_and_is_not_in_it_is_gone() {
    let store = filled();
    store.note_written(object("a", "ua", 10));
    store.begin_list();
    store.note_written(object("b", "ub", 11));
    replace(&store, Vec::new(), BTreeMap::new());
    assert_eq!(version(&store, "a"), None, "it was written before");
    assert_eq!(
        version(&store, "b"),
        Some(11),
        "it was written while the list was read"
    );
    store.begin_list();
    replace(&store, Vec::new(), BTreeMap::new());
    assert_eq!(store.len(), 0);
}

#[test]
fn invariant_13_the_last_finalizer_that_is_taken_off_is_the_end() {
    let deleting = |version: u64, finalizers: &[&str], grace: Option<i64>| {
        let mut object = object("a", "ua", version);
        object.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
        object.metadata.deletion_grace_period_seconds = grace;
        object.metadata.finalizers = Some(finalizers.iter().map(|one| (*one).to_owned()).collect());
        object
    };
    let store = filled();
    store.note_written(deleting(10, &["ours", "another's"], None));
    store.note_written(deleting(11, &["another's"], Some(0)));
    assert_eq!(version(&store, "a"), Some(11));
    store.note_written(deleting(12, &[], Some(30)));
    assert_eq!(version(&store, "a"), Some(12), "it has its time to stop");
    store.note_written(deleting(13, &[], Some(0)));
    assert_eq!(version(&store, "a"), None);
    store.apply(deleting(11, &["another's"], None));
    assert_eq!(version(&store, "a"), None, "news from before its end");
    store.apply(object("a", "successor", 14));
    assert_eq!(version(&store, "a"), Some(14));
}

#[test]
fn a_late_answer_does_not_raise_the_dead() {
    let store = filled();
    store.apply(object("a", "ua", 5));
    store.delete(&key("a"), Some("ua"), Some(6));
    store.note_written(object("a", "ua", 5));
    assert_eq!(version(&store, "a"), None);
}

#[test]
fn what_a_write_found_gone_stays_gone_but_its_successor_comes() {
    let store = filled();
    store.note_gone(&key("a"), "another");
    assert_eq!(version(&store, "a"), Some(1), "the UID protects a successor");
    store.note_gone(&key("a"), "ua");
    assert_eq!(version(&store, "a"), None);
    store.apply(object("a", "ua", 7));
    assert_eq!(version(&store, "a"), None, "news from before the end");
    store.note_written(object("a", "ua2", 9));
    store.delete(&key("a"), Some("ua"), Some(8));
    assert_eq!(version(&store, "a"), Some(9), "the end of the predecessor");
}

#[test]
fn what_has_changed_since_a_count_is_known_until_that_is_long_ago() {
    let store = filled();
    let before = store.changes();
    assert_eq!(store.changed_since(before), Some(Vec::new()));
    store.apply(object("b", "ub", 3));
    store.delete(&key("a"), Some("ua"), Some(4));
    store.apply(object("c", "uc", 5));
    store.apply(object("b", "ub", 6));
    assert_eq!(
        store.changed_since(before),
        Some(vec![key("a"), key("b"), key("c")])
    );
    assert_eq!(store.changed_since(store.changes() - 1), Some(vec![key("b")]));
    assert_eq!(store.changed_since(store.changes() + 1), None, "not yet");
    // What says the same is no change, and is not remembered as one.
    let (count, mut same) = (store.changes(), object("b", "ub", 6));
    same.metadata.resource_version = Some("7".to_owned());
    store.apply(same);
    assert_eq!(store.changed_since(count), Some(Vec::new()));
    let limit = contents::REMEMBERED_CHANGES as u64;
    for version in 0..limit {
        store.apply(object("d", "ud", 8 + version));
    }
    assert_eq!(store.changed_since(count), Some(vec![key("d")]));
    assert_eq!(store.changed_since(count - 1), None, "the oldest is forgotten");
}

#[test]
fn unreadable_objects_are_set_aside_until_they_are_mended() {
    let store = filled();
    store.reject(&key("a"), Some(3), "missing field spec".into());
    assert_eq!(store.rejected(), [(key("a"), "missing field spec".to_owned())]);
    assert_eq!(store.keys(), [key("b")]);
    store.apply(object("a", "ua", 4));
    assert!(store.rejected().is_empty());
    assert_eq!(store.len(), 2);
    let rejected = BTreeMap::from([(key("b"), "bad".to_owned())]);
    replace(&store, vec![object("a", "ua", 4)], rejected);
    assert_eq!((store.keys(), store.rejected().len()), (vec![key("a")], 1));
    store.delete(&key("b"), Some("ub"), Some(9));
    assert!(store.rejected().is_empty());
}

/// Whoever reads in between, as collectors of what nobody owns do, finds it among the one or the other.
#[test]
fn what_can_be_read_again_is_never_missing_from_both() {
    let store = filled();
    store.reject(&key("b"), Some(3), "bad".into());
    let (seen, all) = (Arc::new(Mutex::new(0)), store.clone());
    let count = seen.clone();
    store.on_change(move |_| {
        let (objects, rejected) = all.with_rejected();
        assert!(
            rejected.contains("b")
                || objects
                    .iter()
                    .any(|one| one.metadata.name.as_deref() == Some("b"))
        );
        *count.lock().unwrap() += 1;
    });
    replace(
        &store,
        vec![object("a", "ua", 4), object("b", "ub", 5)],
        BTreeMap::new(),
    );
    assert_eq!(*seen.lock().unwrap(), 3, "the arrival of one, and changes of two");
    assert!(store.rejected().is_empty());
}

#[test]
fn indexes_follow_every_change() {
    let store = filled();
    let by_uid = store.index(|object: &ConfigMap| object.metadata.uid.iter().cloned().collect());
    assert_eq!(by_uid.get("ub").len(), 1);
    store.apply(object("c", "ub", 3));
    let names: Vec<String> = by_uid
        .get("ub")
        .iter()
        .map(|o| ObjectKey::of(&**o).name)
        .collect();
    assert_eq!(names, ["b", "c"]);
    store.apply(object("b", "moved", 4));
    assert_eq!((by_uid.count("ub"), by_uid.count("moved")), (1, 1));
    store.delete(&key("c"), Some("ub"), Some(5));
    assert_eq!(by_uid.values(), ["moved", "ua"]);
}

#[test]
fn managed_fields_are_not_kept() {
    let store: Store<ConfigMap> = Store::default();
    let mut heavy = object("a", "ua", 1);
    heavy.metadata.managed_fields = Some(vec![ManagedFieldsEntry::default()]);
    store.apply(heavy);
    assert_eq!(store.get(&key("a")).unwrap().metadata.managed_fields, None);
}

/// A heartbeat: the object replaces the previous one without notifying handlers.
#[test]
fn what_differs_in_its_version_only_is_no_change() {
    let store: Store<ConfigMap> = Store::new(StoreOptions::trimmed(|object: &mut ConfigMap| {
        if let Some(data) = &mut object.data {
            data.remove("heartbeat");
        }
    }));
    let by_uid = store.index(|object| object.metadata.uid.clone().into_iter().collect());
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let told = heard.clone();
    store.on_change(move |change| {
        let text = |object: &Option<Arc<ConfigMap>>| {
            object
                .as_ref()
                .and_then(|object| object.data.as_ref()?.get("value").cloned())
        };
        told.lock().unwrap().push(format!("{:?}", text(&change.new)));
    });
    let beat = |version: u64, value: &str| ConfigMap {
        data: Some(
            [
                ("heartbeat".to_owned(), version.to_string()),
                ("value".to_owned(), value.to_owned()),
            ]
            .into(),
        ),
        ..object("a", "ua", version)
    };
    store.apply(beat(1, "x"));
    let before = store.changes();
    store.apply(beat(2, "x"));
    store.note_written(beat(3, "x"));
    replace(&store, vec![beat(4, "x")], BTreeMap::new());
    assert_eq!(store.changes(), before);
    assert_eq!(
        version(&store, "a"),
        Some(4),
        "writes are made on the version that is there"
    );
    let found: Vec<Option<u64>> = by_uid.get("ua").iter().map(|one| version_of(one)).collect();
    assert_eq!(found, [Some(4)], "also by an index");
    store.apply(beat(3, "y"));
    assert_eq!(version(&store, "a"), Some(4), "older news stays older");
    store.apply(beat(5, "y"));
    assert_eq!(store.changes(), before + 1);
    assert_eq!(*heard.lock().unwrap(), ["Some(\"x\")", "Some(\"y\")"]);
    // A successor that says the same is another object.
    let successor = ConfigMap {
        metadata: ObjectMeta {
            uid: Some("ub".into()),
            ..beat(6, "y").metadata
        },
        ..beat(6, "y")
    };
    store.apply(successor);
    assert_eq!(store.changes(), before + 2);
}

/// Events on the server and between it and us.
#[derive(Clone, Debug)]
enum Step {
    /// Another client writes; the watch will deliver it.
    Write(u8),
    /// We write and apply the response at once, before the watch delivers it.
    OwnWrite(u8),
    /// We write, and the response arrives after the watch has delivered everything up to here.
    LateAnswer(u8),
    Delete(u8),
    /// We delete and take that in at once.
    OwnDelete(u8),
    /// The watch delivers this many further events.
    Tell(u8),
    /// The watch breaks and lists again.
    Relist,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = 0_u8..3;
    let step = prop_oneof![
        name.clone().prop_map(Step::Write),
        name.clone().prop_map(Step::OwnWrite),
        name.clone().prop_map(Step::LateAnswer),
        name.clone().prop_map(Step::Delete),
        name.prop_map(Step::OwnDelete),
        (1_u8..6).prop_map(Step::Tell),
        Just(Step::Relist),
    ];
    proptest::collection::vec(step, 0..60)
}

/// A server in three lists.
#[derive(Default)]
struct Server {
    version: u64,
    objects: BTreeMap<String, ConfigMap>,
    /// Events that the watch has not delivered yet.
    news: std::collections::VecDeque<(ConfigMap, bool)>,
    late: Vec<ConfigMap>,
}

impl Server {
    fn write(&mut self, name: u8) -> ConfigMap {
        self.version += 1;
        let name = name.to_string();
        let uid = match self.objects.get(&name) {
            Some(known) => known.metadata.uid.clone().unwrap(),
            None => format!("uid-{}", self.version),
        };
        let written = object(&name, &uid, self.version);
        self.objects.insert(name, written.clone());
        self.news.push_back((written.clone(), true));
        written
    }

    fn delete(&mut self, name: u8) -> Option<ConfigMap> {
        let mut last = self.objects.remove(&name.to_string())?;
        self.version += 1;
        last.metadata.resource_version = Some(self.version.to_string());
        self.news.push_back((last.clone(), false));
        Some(last)
    }

    fn tell(&mut self, store: &Store<ConfigMap>) {
        match self.news.pop_front() {
            Some((object, true)) => store.apply(object),
            Some((object, false)) => {
                store.delete(
                    &ObjectKey::of(&object),
                    object.metadata.uid.as_deref(),
                    version_of(&object),
                );
            }
            None => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// However events, responses and lists interleave: no object ever goes back in time, indexes agree with the objects, and once
    /// all events are delivered the store equals the server.
    #[test]
    fn the_store_never_goes_back_and_ends_equal(steps in steps()) {
        let store: Store<ConfigMap> = Store::default();
        let newest: Arc<Mutex<BTreeMap<String, u64>>> = Arc::default();
        let went_back: Arc<Mutex<Vec<String>>> = Arc::default();
        let (high, wrong) = (newest, went_back.clone());
        store.on_change(move |change| {
            if let Some(new) = &change.new {
                let version = version_of(new).unwrap();
                let uid = new.metadata.uid.clone().unwrap();
                let mut high = high.lock().unwrap();
                let before = high.entry(uid).or_insert(0);
                if version <= *before {
                    wrong.lock().unwrap().push(format!("{} from {before} to {version}", change.key));
                }
                *before = version;
            }
        });
        let by_uid = store.index(|object: &ConfigMap| object.metadata.uid.iter().cloned().collect());
        replace(&store, Vec::new(), BTreeMap::new());
        let mut server = Server::default();
        for step in steps {
            match step {
                Step::Write(name) => drop(server.write(name)),
                Step::OwnWrite(name) => {
                    let written = server.write(name);
                    let (uid, version_now) = (written.metadata.uid.clone(), version_of(&written));
                    store.note_written(written);
                    let seen = store.get(&key(&name.to_string()));
                    prop_assert_eq!(seen.as_ref().and_then(|o| o.metadata.uid.clone()), uid, "own write not seen");
                    prop_assert_eq!(seen.as_deref().and_then(version_of), version_now);
                }
                Step::LateAnswer(name) => {
                    let answer = server.write(name);
                    server.late.push(answer);
                }
                Step::Delete(name) => drop(server.delete(name)),
                Step::OwnDelete(name) => {
                    if let Some(last) = server.delete(name) {
                        let uid = last.metadata.uid.clone().unwrap();
                        store.note_gone(&ObjectKey::of(&last), &uid);
                        prop_assert!(by_uid.get(&uid).is_empty(), "own delete not seen");
                    }
                }
                Step::Tell(count) => {
                    for _ in 0..count {
                        server.tell(&store);
                    }
                    for answer in std::mem::take(&mut server.late) {
                        store.note_written(answer);
                    }
                }
                Step::Relist => {
                    server.news.clear();
                    store.begin_list();
                    replace(&store, server.objects.values().cloned().collect(), BTreeMap::new());
                }
            }
            let indexed: usize = by_uid.values().iter().map(|uid| by_uid.count(uid)).sum();
            prop_assert_eq!(indexed, store.len());
            prop_assert!(went_back.lock().unwrap().is_empty(), "{:?}", went_back.lock().unwrap());
        }
        while !server.news.is_empty() {
            server.tell(&store);
        }
        // No more events: objects that only we wrote are resolved by a list.
        store.begin_list();
        let expected: Vec<ConfigMap> = server.objects.into_values().collect();
        replace(&store, expected.clone(), BTreeMap::new());
        let got: Vec<ConfigMap> = store.snapshot().iter().map(|object| (**object).clone()).collect();
        prop_assert_eq!(got, expected);
    }
}
