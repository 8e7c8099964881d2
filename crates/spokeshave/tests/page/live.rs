//! Pages and metrics of running clusters: what they cost there, what they say of lists that nobody may see, and that nobody writes who looks at them.

use std::collections::{BTreeSet, VecDeque};
use std::io::Read as _;
use std::path::Path;
use std::sync::{Arc, Mutex};

use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use super::shown::{self, Shown};
use super::{Web, array, dump_of, said};

/// A workload of some nodes, which cost more than a dollar.
const SHOP: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 80
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: example.com/web, resources: {requests: {cpu: 900m, memory: 1200Mi}}}]
"#;

/// How often a cluster is asked at most: nodes come and go meanwhile.
const LOOKS: usize = 200;

/// The page of a cluster of `up` with this workload, and its kubeconfig.
fn shop(folder: &Path) -> (Web, String) {
    let path = |name: &str| folder.join(name).display().to_string();
    let (manifests, kubeconfig) = (path("shop.yaml"), path("kubeconfig"));
    std::fs::write(&manifests, SHOP).expect("written");
    let up = ["up", "--speed", "10", "--exit-after", "10m", "-f", &manifests];
    let web = Web::running(&[&up[..], &["--kubeconfig", &kubeconfig]].concat());
    (web, kubeconfig)
}

#[test]
fn a_running_cluster_costs_on_its_page_what_plan_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let (web, kubeconfig) = shop(folder.path());
    let plan = ["plan", "--live", "--kubeconfig", &kubeconfig, "-o", "json"];
    let mut news = web.ask("/api/changes");
    let mut looks = Vec::new();
    while looks.len() < LOOKS {
        // There is something to tell, if only that it is still there.
        let read = news.read(&mut [0; 4096]).expect("news");
        assert!(read > 0, "it ended: {looks:?}");
        let (before, page) = (web.json("/api/view"), web.get("/"));
        let planned: Value = serde_json::from_str(&said(0, &plan)).expect("JSON");
        let after = web.json("/api/view");
        let price = before["header"]["price"].as_f64().expect("a price");
        let names = array(&before["nodes"]["name"]);
        let rows: Vec<String> = names.iter().map(|name| format!("data-row={name}")).collect();
        let is_same = after["header"]["price"] == price
            && after["nodes"]["name"] == before["nodes"]["name"]
            && planned["cluster"]["price"] == price
            && planned["cluster"]["nodes"] == names.len()
            && page.matches("data-row=").count() == names.len()
            && rows.iter().all(|row| page.contains(row))
            && page.contains(&format!("<b>${price:.2}/h</b>"));
        if price > 1.0 && is_same {
            return;
        }
        looks.push((price, planned["cluster"]["price"].clone()));
    }
    panic!("the page and plan never said the same: {looks:?}");
}

/// `/metrics` of the API server that a kubeconfig leads to, with its token.
async fn scrape(kubeconfig: &str) -> String {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .expect("it leads somewhere");
    let client = kube::Client::try_from(config).expect("a client");
    let request = http::Request::get("/metrics")
        .body(Vec::new())
        .expect("a request");
    client.request_text(request).await.expect("metrics")
}

/// As Prometheus would scrape any API server: what the operator of `up` counts is there.
#[test]
fn the_metrics_of_a_running_cluster_are_those_of_its_operator() {
    const CREATED: &str = "karpenter_nodeclaims_created_total{";
    let folder = tempfile::tempdir().expect("a folder");
    let (web, kubeconfig) = shop(folder.path());
    let mut news = web.ask("/api/changes");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let mut scraped = String::new();
    for _ in 0..LOOKS {
        scraped = runtime.block_on(scrape(&kubeconfig));
        if scraped.contains(CREATED) {
            break;
        }
        // Until there is something to tell, if only that it is still there.
        let read = news.read(&mut [0; 4096]).expect("news");
        assert!(read > 0, "it ended: {scraped}");
    }
    let mut series = scraped.lines().filter(|line| line.starts_with(CREATED));
    let is_of_pool = |line: &str| line.contains("nodepool=\"default\"") && !line.ends_with(" 0");
    assert!(series.any(is_of_pool), "no NodeClaim is counted: {scraped}");
}

/// An API server with the objects of a dump that does not list everything to everybody, and writes down what it is asked for.
struct Cluster {
    asked: Arc<Mutex<Vec<String>>>,
    kubeconfig: String,
    _folder: tempfile::TempDir,
}

impl Cluster {
    /// One that refuses lists with this name, if any.
    fn of(dump: &Value, refused: Option<&'static str>) -> Self {
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let folder = tempfile::tempdir().expect("a folder");
        let shown = Shown {
            objects: array(&dump["items"]).to_vec(),
            refused: refused.map(|list| (list, 403)),
            date: Some("Mon, 02 Mar 2026 12:00:00 GMT"),
            asked: Arc::clone(&asked),
        };
        let kubeconfig = shown::kubeconfig(folder.path(), shown).display().to_string();
        Self {
            asked,
            kubeconfig,
            _folder: folder,
        }
    }

    fn web(&self) -> Web {
        Web::running(&["web", "--kubeconfig", &self.kubeconfig])
    }
}

/// What follows the name of a figure in the header of a page.
fn figure<'a>(header: &'a str, name: &str) -> &'a str {
    let (_, rest) = header
        .split_once(&format!("<dt>{name}</dt>"))
        .unwrap_or_else(|| panic!("no {name}: {header}"));
    let (figure, _) = rest.split_once("</dd>").expect("its end");
    figure
}

/// What may not be listed is named, and what depends on it is neither a number nor a verdict.
#[test]
fn nothing_is_made_up_for_lists_that_may_not_be_seen() {
    const NODES: usize = 20;
    const FIGURES: [(&str, &str); 3] = [("cost", "price"), ("idle", "idle"), ("could save", "couldSave")];
    for (refused, resource, least) in [
        ("nodepools", "nodepools.karpenter.sh", 3),
        ("poddisruptionbudgets", "poddisruptionbudgets.policy", 1),
    ] {
        let cluster = Cluster::of(&dump_of(NODES), Some(refused));
        let web = cluster.web();
        let (view, page) = (web.json("/api/view"), web.get("/"));
        let named = format!("not observed: <code>{resource}</code>");
        assert!(page.contains(&named), "{refused}: {page}");
        let (_, header) = page.split_once(r#"id="top""#).expect("a header");
        let (header, _) = header.split_once("</header>").expect("its end");
        let unknown = array(&view["header"]["unknown"]);
        let told = FIGURES
            .iter()
            .filter(|(_, field)| unknown.contains(&json!(field)));
        let told: Vec<&str> = told.map(|(name, _)| *name).collect();
        assert!(told.len() >= least, "{refused}: {unknown:?}");
        for name in told {
            let figure = figure(header, name);
            assert!(
                figure.contains("<b>?</b>") && !figure.contains('$'),
                "{refused}: {name}: {figure}"
            );
        }
        assert!(!header.contains("$0.00"), "{refused}: {header}");
        assert_eq!(page.matches(r#"<a class="node "#).count(), NODES, "{refused}");
        let of_unknown = page.matches(r#"<a class="node unknown"#).count();
        assert_eq!(of_unknown, NODES, "{refused}: boxes without a verdict");
        assert_eq!(
            view["nodes"]["verdict"]["values"],
            json!(["unknown"]),
            "{refused}"
        );
    }
}

/// The addresses of a page's links.
fn links(page: &str) -> BTreeSet<String> {
    let links = page.split("href=\"/").skip(1);
    let links = links.filter_map(|rest| rest.split_once('"'));
    links
        .map(|(link, _)| format!("/{}", link.replace("&amp;", "&")))
        .collect()
}

/// Whoever follows every link of the page, and every switch of every node, asks the cluster for nothing but lists.
#[test]
fn following_every_link_and_switch_asks_only_for_lists() {
    let cluster = Cluster::of(&dump_of(16), None);
    let web = cluster.web();
    let mut to_follow: VecDeque<String> = ["/".to_owned()].into();
    let mut known: BTreeSet<String> = to_follow.iter().cloned().collect();
    let (mut followed, mut switched) = (0, 0);
    while let Some(link) = to_follow.pop_front() {
        let page = web.get(&link);
        let is_switch = |link: &str| link.contains("without=") || link.contains("gone=");
        followed += 1;
        if is_switch(&link) {
            switched += 1;
            assert!(
                page.contains("Nothing is changed in the cluster."),
                "{link}: {page}"
            );
            continue;
        }
        // All of the first page, and the switches of those that it leads to.
        let next = links(&page)
            .into_iter()
            .filter(|one| link == "/" || is_switch(one));
        for one in next.filter(|one| !one.starts_with("/assets/")) {
            if known.insert(one.clone()) {
                to_follow.push_back(one);
            }
        }
    }
    assert!(
        followed > 40 && switched > 10,
        "{followed} links, {switched} of switches"
    );
    let asked = cluster.asked.lock().expect("nobody panics");
    let others = asked.iter().filter(|request| !request.starts_with("GET /"));
    let others: Vec<&String> = others.collect();
    assert!(
        others.is_empty() && asked.len() > 18,
        "{others:?} of {}",
        asked.len()
    );
}
