//! The page of a dump or a cluster over HTTP: how much it is, what it costs there, and that `plan`, `explain`, `top`, `budgets` and the page say the same.

#[path = "page/live.rs"]
mod live;
#[path = "page/settings.rs"]
mod settings;
mod shown;
#[path = "page/worlds.rs"]
mod worlds;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

const NOW: &str = "2026-03-02T12:00:00Z";
/// When nodes and pods of the dump were created.
const BEFORE: &str = "2026-03-02T11:00:00Z";
const NODES: usize = 100;
/// What a page of so many nodes may take.
const PAGE_BYTES: usize = 200_000;

fn condition(kind: &str) -> Value {
    json!({"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": BEFORE})
}

/// A node of one of three sizes, on demand or spot, and its NodeClaim.
fn machine(pool: &str, index: usize) -> [Value; 2] {
    let (name, cores) = (format!("{pool}-{index:05}"), [4, 8, 16][index % 3]);
    let zone = ["test-zone-a", "test-zone-b", "test-zone-c", "test-zone-d"][index % 4];
    let capacity_type = ["on-demand", "spot"][index % 2];
    let labels = json!({
        "karpenter.sh/nodepool": pool, "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true",
        "karpenter.sh/capacity-type": capacity_type, "topology.kubernetes.io/zone": zone,
        "node.kubernetes.io/instance-type": format!("c-{cores}x-amd64-linux"),
        "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "kubernetes.io/hostname": name,
    });
    let room = json!({"cpu": cores.to_string(), "memory": format!("{}Gi", cores * 2), "pods": "110"});
    let id = format!("kwok://{name}");
    let class = json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"});
    let conditions = ["Launched", "Registered", "Initialized", "Consolidatable"].map(condition);
    [
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "uid": format!("n-{name}"), "labels": labels, "creationTimestamp": BEFORE},
            "spec": {"providerID": id},
            "status": {"capacity": room, "allocatable": room, "conditions": [condition("Ready")]},
        }),
        json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": name, "uid": format!("c-{name}"), "labels": labels, "creationTimestamp": BEFORE},
            "spec": {"nodeClassRef": class, "requirements": []},
            "status": {"providerID": id, "nodeName": name, "capacity": room, "allocatable": room, "conditions": conditions},
        }),
    ]
}

/// One of a few pods of a node; every seventh node has one that must not be disrupted. Without a node it waits.
fn pod(name: &str, node: Option<usize>, number: usize) -> Value {
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d9", "uid": "web", "controller": true});
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "uid": name, "labels": {"app": "web"}, "creationTimestamp": BEFORE, "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "400m", "memory": "600Mi"}}}]},
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
    });
    if let Some(index) = node {
        pod["spec"]["nodeName"] = format!("default-{index:05}").into();
        pod["status"] = json!({"phase": "Running", "startTime": BEFORE});
        if number == 0 && index % 7 == 0 {
            pod["metadata"]["annotations"] = json!({"karpenter.sh/do-not-disrupt": "true"});
        }
    }
    pod
}

fn node_pool(name: &str, budgets: &Value) -> Value {
    let class = json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"});
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name, "uid": name},
        "spec": {
            "template": {"spec": {"nodeClassRef": class, "requirements": []}},
            "disruption": {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "30s", "budgets": budgets},
        },
        "status": {"conditions": [condition("Ready")]},
    })
}

fn list(items: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

/// Nodes that are filled differently, some of which are kept and some of which may go, and pods that wait.
fn dump() -> Value {
    dump_of(NODES)
}

/// The same of so many nodes.
fn dump_of(nodes: usize) -> Value {
    let mut items = vec![node_pool("default", &json!([{"nodes": "10%"}]))];
    for index in 0..nodes {
        items.extend(machine("default", index));
        for number in 0..index % 8 {
            items.push(pod(&format!("web-{index:05}-{number}"), Some(index), number));
        }
    }
    items.extend((0..6).map(|number| pod(&format!("web-new-{number}"), None, number)));
    list(&items)
}

/// A program that serves a page, and does not outlive its test.
struct Web {
    process: Child,
    /// Read no further, and kept open: the program writes there.
    _stderr: BufReader<ChildStderr>,
    host: String,
    token: String,
}

impl Drop for Web {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

impl Web {
    /// `spokeshave web` of a dump.
    fn of(file: &str) -> Self {
        Self::running(&["web", "-f", file, "--now", NOW])
    }

    /// Begins, and waits until there is something to see.
    fn running(arguments: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_spokeshave"))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program runs");
        let mut stderr = BufReader::new(process.stderr.take().expect("what it says"));
        let mut said = String::new();
        while !said.contains("/?token=") {
            let read = stderr.read_line(&mut said).expect("text");
            assert!(read > 0, "it ended: {said}");
        }
        let (_, address) = said.rsplit_once("http://").expect("an address");
        let (host, token) = address.trim().split_once("/?token=").expect("a token");
        let web = Self {
            host: host.to_owned(),
            token: token.to_owned(),
            process,
            _stderr: stderr,
        };
        // Its stream says so when it shows something.
        let (mut stream, mut told) = (web.ask("/api/changes"), Vec::new());
        let mut buffer = [0; 4096];
        while !String::from_utf8_lossy(&told).contains("event: reset") {
            let read = stream.read(&mut buffer).expect("news");
            assert!(read > 0, "it ended: {}", String::from_utf8_lossy(&told));
            told.extend_from_slice(&buffer[..read]);
        }
        web
    }

    fn ask(&self, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.host).expect("it listens");
        // Whatever never comes ends the test.
        let limit = Some(Duration::from_secs(120));
        stream.set_read_timeout(limit).expect("a limit");
        let who = format!("Host: {}\r\nAuthorization: Bearer {}", self.host, self.token);
        let head = format!("GET {path} HTTP/1.1\r\n{who}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).expect("asked");
        stream
    }

    fn get(&self, path: &str) -> String {
        let mut answer = String::new();
        self.ask(path).read_to_string(&mut answer).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.starts_with("HTTP/1.1 200 OK"), "{path}: {head}");
        body.to_owned()
    }

    fn json(&self, path: &str) -> Value {
        serde_json::from_str(&self.get(path)).expect("JSON")
    }
}

fn printed(arguments: &[&str]) -> String {
    printed_with(0, arguments)
}

/// What a command prints that ends with a code.
fn printed_with(code: i32, arguments: &[&str]) -> String {
    said(code, &[arguments, &["--now", NOW]].concat())
}

/// The same by the clock of the cluster, or at another time.
fn said(code: i32, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_spokeshave"))
        .args(arguments)
        .output()
        .expect("the program runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn written(folder: &Path, dump: &Value) -> String {
    let path = folder.join("shop.json");
    std::fs::write(&path, dump.to_string()).expect("written");
    path.display().to_string()
}

#[test]
fn a_page_of_a_hundred_nodes_is_small_has_all_of_them_and_costs_what_plan_says() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = written(folder.path(), &dump());
    let web = Web::of(&file);
    let page = web.get("/");
    assert!(page.len() <= PAGE_BYTES, "{} bytes", page.len());
    assert_eq!(page.matches("data-row=").count(), NODES, "rows of the table");
    let plan: Value = serde_json::from_str(&printed(&["plan", "-f", &file, "-o", "json"])).expect("JSON");
    let cluster = &plan["cluster"];
    assert_eq!(cluster["nodes"], NODES);
    let price = cluster["price"].as_f64().expect("a price");
    assert!(price > 1.0, "{price}");
    assert!(page.contains(&format!("<b>${price:.2}/h</b>")), "{price}: {page}");
    let view: Value = serde_json::from_str(&web.get("/api/view")).expect("JSON");
    assert_eq!(view["header"]["price"], cluster["price"], "to the nano-dollar");
    // There is something of everything, or the page would be small for that.
    let verdicts = view["nodes"]["verdict"]["values"].as_array().expect("verdicts");
    assert!(verdicts.len() > 1, "{verdicts:?}");
    assert!(view["header"]["pending"].as_u64() > Some(0), "{view}");
}

#[test]
fn the_view_that_top_prints_is_that_of_the_page() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = written(folder.path(), &dump());
    let once = printed(&["top", "--once", "-o", "json", "-f", &file]);
    let view = Web::of(&file).get("/api/view");
    assert!(view.contains("PodDoNotDisrupt"), "{view}");
    assert_eq!(once, format!("{view}\n"));
}

/// Budgets of NodePools, each mis-written in its own way: none of them does what whoever wrote it wanted.
fn mis_written() -> Vec<Value> {
    let with = |schedule: &str| json!([{"nodes": "1", "schedule": schedule, "duration": "1h"}]);
    vec![
        json!([{"nodes": "50%", "schedule": "0 0 * * 6", "duration": "48h"}, {"nodes": "0"}]),
        json!([{"nodes": "0"}, {"nodes": "2", "schedule": "0 9 * * mon-fri", "duration": "8h", "reasons": ["Drifted"]}]),
        json!([{"nodes": "1", "schedule": "0 2 * * *", "duration": "2h"}, {"nodes": "3", "schedule": "0 4 * * *", "duration": "4h"}]),
        with("* * * * 7"),
        with("@dailyfoo"),
        with("0 0 9 * * 1-5"),
        with("TZ=Europe/Berlin 0 9 * * 1-5"),
        with("0 0 31 2 *"),
        json!([{"nodes": "1", "schedule": "@daily"}]),
        json!([{"nodes": "1", "duration": "8h"}]),
        json!([{"nodes": "1", "schedule": "@daily", "duration": "0m"}, {"nodes": "50%"}]),
        json!([{"nodes": "1", "schedule": "@hourly", "duration": "90m"}]),
        json!([{"nodes": "10%"}, {"nodes": "0", "schedule": "0 0 * * 6,0", "duration": "48h"}]),
        json!([{"nodes": "ten"}]),
        json!([{"nodes": "2", "reasons": ["drifted"]}]),
    ]
}

fn array(value: &Value) -> &[Value] {
    value.as_array().expect("an array")
}

/// The value of an attribute.
fn number(element: &str, name: &str) -> f64 {
    let (_, value) = element.split_once(&format!(" {name}=\"")).expect("an attribute");
    let (value, _) = value.split_once('"').expect("its end");
    value.parse().expect("a number")
}

fn seconds(at: &Value) -> f64 {
    let at: jiff::Timestamp = at.as_str().expect("a time").parse().expect("RFC 3339");
    at.as_second() as f64
}

/// One reason on the page: a cell for each interval, where it is, how it looks, and what it says when it is pointed at.
fn check_lane(lane: &str, intervals: &[Value], budgets: &[Value]) {
    let cells = lane.split("<rect class=\"").skip(1);
    let cells: Vec<&str> = cells.filter(|cell| !cell.starts_with("pattern")).collect();
    assert_eq!(cells.len(), intervals.len(), "{lane}");
    let first = seconds(&intervals[0]["from"]);
    let whole = seconds(&intervals[intervals.len() - 1]["until"]) - first;
    let x = |at: &Value| (seconds(at) - first) / whole * 1000.0;
    for (cell, interval) in cells.iter().zip(intervals) {
        let (from, width) = (number(cell, "x"), number(cell, "width"));
        assert!((from - x(&interval["from"])).abs() < 0.06, "{interval}: {cell}");
        assert!(
            (from + width - x(&interval["until"])).abs() < 0.11,
            "{interval}: {cell}"
        );
        let (class, _) = cell.split_once('"').expect("a class");
        let looks = if interval["allowed"] == 0 {
            "closed"
        } else {
            "open"
        };
        assert_eq!(class.trim(), looks, "{interval}");
        let (_, title) = cell.split_once("<title>").expect("a title");
        let (title, _) = title.split_once("</title>").expect("its end");
        let allowed = interval["allowed"]
            .as_i64()
            .map_or("no limit".to_owned(), |nodes| nodes.to_string());
        assert!(title.contains(&format!(": {allowed} (")), "{interval}: {title}");
        let limiting = array(&interval["limitedBy"]);
        assert_eq!(
            title.matches("budgets[").count(),
            limiting.len(),
            "{interval}: {title}"
        );
        for index in limiting {
            let budget = &budgets[usize::try_from(index.as_u64().expect("an index")).expect("a small one")];
            let nodes = budget["nodes"].as_str().expect("a text");
            assert!(
                title.contains(&format!("budgets[{index}] nodes: {nodes}")),
                "{interval}: {title}"
            );
            let schedule = budget["schedule"].as_str().unwrap_or_default();
            assert!(title.contains(schedule), "{interval}: {title}");
        }
    }
}

/// What is wrong with a budget is seen where people look for it.
#[test]
fn d_380_the_calendar_of_mis_written_budgets_is_what_the_command_prints() {
    let mut items = Vec::new();
    for (number, budgets) in mis_written().iter().enumerate() {
        let name = format!("pool-{number:02}");
        items.push(node_pool(&name, budgets));
        items.extend((0..3).flat_map(|index| machine(&name, index)));
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = written(folder.path(), &list(&items));
    // A finding of level error is code 3.
    let told = printed_with(3, &["budgets", "-f", &file, "-o", "json", "--days", "7"]);
    let told: Value = serde_json::from_str(&told).expect("JSON");
    let web = Web::of(&file);
    let view: Value = serde_json::from_str(&web.get("/api/view")).expect("JSON");
    let page = web.get("/");
    let (_, panel) = page.split_once(r#"id="budgets""#).expect("a panel");
    let mut lanes = panel.split(r#"<svg class="lane""#).skip(1);
    let (pools, shown) = (array(&told["nodePools"]), array(&view["budgets"]["calendar"]));
    assert_eq!(
        (pools.len(), shown.len()),
        (15, 15),
        "{}",
        view["header"]["missing"]
    );
    let (mut closed, mut open) = (0, 0);
    for (pool, shown) in pools.iter().zip(shown) {
        assert_eq!(pool["name"], shown["pool"]);
        assert_eq!(pool["calendar"], shown["reasons"], "{}", pool["name"]);
        for reason in array(&pool["calendar"]) {
            let (lane, _) = lanes
                .next()
                .and_then(|lane| lane.split_once("</svg>"))
                .expect("a lane");
            let intervals = array(&reason["intervals"]);
            check_lane(lane, intervals, array(&pool["budgets"]));
            let shut = intervals.iter().filter(|one| one["allowed"] == 0).count();
            closed += shut;
            open += intervals.len() - shut;
        }
    }
    assert!(lanes.next().is_none(), "{panel}");
    assert!(
        closed > 20 && open > 20,
        "{closed} closed and {open} open prove little"
    );
}
