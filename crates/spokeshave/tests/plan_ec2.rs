//! `spokeshave plan -f DUMP` where NodePools have EC2NodeClasses: the types and prices are EC2's, as the class has them.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

mod shown;
use shown::Shown;

const CLASS: &str = "\
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  role: KarpenterNodeRole-blue
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{tags: {karpenter.sh/discovery: blue}}]
  securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: blue}}]
";

/// What its controller adds.
const STATUS: &str = "\
status:
  subnets:
  - {id: subnet-1, zone: eu-west-1b, zoneID: euw1-az2}
  conditions: [{type: Ready, status: 'True', reason: Ready, message: '', lastTransitionTime: '2026-01-01T00:00:00Z'}]
";

const POOL: &str = "\
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
      - {key: kubernetes.io/arch, operator: In, values: [amd64]}
      - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
      - {key: karpenter.k8s.aws/instance-family, operator: In, values: [m5]}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, uid: web}
spec: {containers: [{name: web, image: web, resources: {requests: {cpu: '1', memory: 1Gi}}}]}
status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable}]}
";

struct Planned {
    code: Option<i32>,
    plan: Value,
    stdout: String,
    stderr: String,
}

/// As JSON, unless the arguments ask for something else.
fn plan(arguments: &[&str], dump: &str) -> Planned {
    let format: &[&str] = if arguments.contains(&"-o") {
        &[]
    } else {
        &["-o", "json"]
    };
    let mut child = Command::new(env!("CARGO_BIN_EXE_spokeshave"))
        .args(["plan", "-f", "-", "--now", "2026-01-01T01:00:00Z"])
        .args(format)
        .args(arguments)
        .env_remove("COLUMNS")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("piped");
    // A program that refuses early does not read all of it.
    drop(stdin.write_all(dump.as_bytes()));
    drop(stdin);
    let output = child.wait_with_output().expect("the program ends");
    Planned {
        code: output.status.code(),
        plan: serde_json::from_slice(&output.stdout).unwrap_or_default(),
        stdout: String::from_utf8(output.stdout).expect("UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

/// The type that is launched first, its zones and its price.
fn first(planned: &Planned) -> (String, String) {
    let claims = &planned.plan["provisioning"]["nodeClaims"];
    assert_eq!(
        claims.as_array().map(Vec::len),
        Some(1),
        "{}\n{claims:#}",
        planned.stderr
    );
    let text = claims[0].to_string();
    let launch = &claims[0]["cheapest"];
    (format!("{} {}", launch["instanceType"], launch["price"]), text)
}

#[test]
fn a_050_a_dump_with_its_class_is_planned_with_the_types_prices_and_zones_of_ec2() {
    let dump = format!("{CLASS}{STATUS}{POOL}");
    let planned = plan(&[], &dump);
    let (launch, text) = first(&planned);
    assert!(launch.contains("\"m5.large\" 0.096"), "{launch}\n{text}");
    assert!(
        text.contains("eu-west-1b") && !text.contains("eu-west-1a") && !text.contains("us-east-1"),
        "{text}"
    );
    assert!(
        planned
            .stderr
            .contains("in eu-west-1, which has no table of its own"),
        "{}",
        planned.stderr
    );
    assert!(!planned.stderr.contains("kwok"), "{}", planned.stderr);
}

#[test]
fn a_050_a_manifest_gets_every_zone_and_the_region_that_is_asked_for() {
    let dump = format!("{CLASS}{POOL}");
    let planned = plan(&["--region", "us-gov-west-1"], &dump);
    let (launch, text) = first(&planned);
    assert!(
        launch.contains("\"m5.large\" 0.121"),
        "the region's own price: {launch}"
    );
    assert!(text.contains("us-gov-west-1"), "{text}");
    assert!(
        planned
            .stderr
            .contains("EC2NodeClass default has no subnets in its status"),
        "{}",
        planned.stderr
    );
    let bare = plan(&[], POOL.trim_start_matches("---\n"));
    assert!(first(&bare).1.contains("us-east-1"), "{}", bare.stderr);
    assert!(
        bare.stderr.contains("kubectl get ec2nodeclasses"),
        "{}",
        bare.stderr
    );
}

#[test]
fn a_050_a_kubelet_setting_of_the_class_counts_and_a_class_that_is_missing_launches_nothing() {
    let large = CLASS.replace("spec:\n", "spec:\n  kubelet: {systemReserved: {cpu: 950m}}\n");
    let (launch, _) = first(&plan(&[], &format!("{large}{POOL}")));
    assert!(
        launch.contains("\"m5.xlarge\""),
        "a CPU is kept for the system: {launch}"
    );
    let other = CLASS.replace("name: default", "name: other");
    let planned = plan(&[], &format!("{other}{POOL}"));
    let claims = &planned.plan["provisioning"]["nodeClaims"];
    assert_eq!(claims.as_array().map(Vec::len), Some(0), "{claims:#}");
}

/// The tables have no prices of spot: a node that runs counts with what it cost at its launch, if its NodeClaim says so, and the plan tells which it is.
#[test]
fn a_054_a_spot_node_counts_with_its_price_at_launch_and_the_plan_says_so() {
    let labels = "{karpenter.sh/nodepool: general, karpenter.sh/capacity-type: spot, karpenter.sh/registered: 'true', karpenter.sh/initialized: 'true', \
                  node.kubernetes.io/instance-type: m5.large, topology.kubernetes.io/zone: eu-west-1b, topology.kubernetes.io/region: eu-west-1}";
    let machine = |annotations: &str| {
        format!(
            "---\napiVersion: karpenter.sh/v1\nkind: NodeClaim\nmetadata: {{name: general-1, uid: c, labels: {labels}, annotations: {annotations}}}\n\
             spec: {{requirements: [], nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}}}\n\
             status: {{providerID: 'aws:///eu-west-1b/i-1'}}\n\
             ---\napiVersion: v1\nkind: Node\nmetadata: {{name: n1, uid: node, labels: {labels}}}\nspec: {{providerID: 'aws:///eu-west-1b/i-1'}}\n\
             status: {{conditions: [{{type: Ready, status: 'True'}}]}}\n"
        )
    };
    for (annotations, price, said) in [
        (
            "{spokeshave.dev/price-at-launch: '0.0321'}",
            0.0321,
            "note: prices of spot are not known here: 1 spot node counted with the price at launch\n",
        ),
        (
            "{}",
            0.096,
            "note: prices of spot are not known here: 1 spot node counted with the price of on-demand, because no NodeClaim says what they cost at launch\n",
        ),
    ] {
        let planned = plan(&[], &format!("{CLASS}{STATUS}{POOL}{}", machine(annotations)));
        assert_eq!(planned.plan["cluster"]["price"], price, "{}", planned.stderr);
        assert!(planned.stderr.contains(said), "{}", planned.stderr);
    }
    let none = plan(&[], &format!("{CLASS}{STATUS}{POOL}"));
    assert!(!none.stderr.contains("prices of spot are not"), "{}", none.stderr);
}

/// By prices of on-demand more is saved than the node costs: only as a share does it say something.
#[test]
fn a_054_what_a_replacement_of_a_spot_node_saves_is_told_as_a_share() {
    let labels = "{karpenter.sh/nodepool: general, karpenter.sh/capacity-type: spot, karpenter.sh/registered: 'true', karpenter.sh/initialized: 'true', \
                  node.kubernetes.io/instance-type: m5.xlarge, topology.kubernetes.io/zone: eu-west-1b, topology.kubernetes.io/region: eu-west-1}";
    let condition = |name: &str| {
        format!(
            "{{type: {name}, status: 'True', reason: Is, message: '', lastTransitionTime: '2026-01-01T00:00:00Z'}}"
        )
    };
    let conditions = ["Launched", "Registered", "Initialized", "Drifted"]
        .map(condition)
        .join(", ");
    let objects = format!(
        "---\napiVersion: karpenter.sh/v1\nkind: NodeClaim\n\
         metadata: {{name: general-1, uid: claim, labels: {labels}, annotations: {{spokeshave.dev/price-at-launch: '0.0321'}}}}\n\
         spec: {{requirements: [], nodeClassRef: {{group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}}}\n\
         status: {{providerID: 'aws:///eu-west-1b/i-1', conditions: [{conditions}]}}\n\
         ---\napiVersion: v1\nkind: Node\nmetadata: {{name: n1, uid: node, labels: {labels}}}\nspec: {{providerID: 'aws:///eu-west-1b/i-1'}}\n\
         status: {{capacity: {{cpu: '4', memory: 16Gi, pods: '58'}}, allocatable: {{cpu: 3900m, memory: 14Gi, pods: '58'}}, \
         conditions: [{{type: Ready, status: 'True'}}]}}\n"
    );
    let (pool, _) = POOL.split_once("---\napiVersion: v1\nkind: Pod").expect("a pod");
    let pod = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop, uid: web}\n\
               spec: {nodeName: n1, containers: [{name: web, image: web, resources: {requests: {cpu: '1', memory: 1Gi}}}]}\n\
               status: {phase: Running, conditions: [{type: PodScheduled, status: 'True'}]}\n";
    let dump = format!("{CLASS}{STATUS}{pool}{pod}{objects}");
    let page = plan(&["--verdicts", "-o", "table"], &dump).stdout;
    for line in [
        "DISRUPT 1 node: replace (Drifted), saves 50% by prices of on-demand\n",
        "1 pod would move · $0.1920/h before, $0.0960/h after by prices of on-demand ·",
        "\n  n1: replace by m5.large (Drift), saves 50% by prices of on-demand\n",
    ] {
        assert!(page.contains(line), "{line}: {page}");
    }
}

/// Which class it would be is not for the user to guess: of a cluster that does not show its classes, what it says is told.
#[test]
fn a_050_a_cluster_without_classes_and_one_that_does_not_show_them_are_told_apart() {
    let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "general", "uid": "u"},
        "spec": {"template": {"spec": {"requirements": [],
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}}}},
        "status": {"conditions": [condition("NodeClassReady"), condition("Ready")]},
    });
    let directory = tempfile::tempdir().expect("a directory");
    for (status, told) in [
        (
            403,
            "note: EC2NodeClass default may not be listed (sam may not do this",
        ),
        (404, "note: there is no EC2NodeClass (default): taken as AL2023"),
    ] {
        let shown = Shown {
            objects: vec![pool.clone()],
            refused: Some(("ec2nodeclasses", status)),
            ..Shown::default()
        };
        let kubeconfig = shown::kubeconfig(directory.path(), shown);
        for command in ["plan", "doctor"] {
            let output = Command::new(env!("CARGO_BIN_EXE_spokeshave"))
                .args([command, "--live", "--kubeconfig"])
                .arg(&kubeconfig)
                .output()
                .expect("the program runs");
            let notes = String::from_utf8(output.stderr).expect("UTF-8");
            assert!(notes.contains(told), "{command}: {notes}");
            assert!(!notes.contains("in the dump"), "{command}: {notes}");
        }
    }
}

/// What is left of a reservation only AWS knows: that this program does not is no reason to say that the operator launches nothing.
#[test]
fn d_356_a_fixed_number_in_reservations_that_nobody_has_looked_at_is_not_called_impossible() {
    let class = format!("{CLASS}  capacityReservationSelectorTerms: [{{tags: {{team: web}}}}]\n");
    let reservation = "  capacityReservations:\n  - {availabilityZone: eu-west-1b, id: cr-00000000000000001, instanceMatchCriteria: targeted, \
                       instanceType: m5.large, ownerID: '123456789012', reservationType: default, state: active}\n";
    let (pool, _) = POOL.split_once("---\napiVersion: v1\nkind: Pod").expect("a pod");
    let pool = pool.replace("spec:\n  template", "spec:\n  replicas: 3\n  template");
    let pool = pool.replace("[on-demand]", "[reserved]");
    let said = |words: &[&str], dump: &str| {
        let mut file = tempfile::NamedTempFile::with_suffix(".yaml").expect("a file");
        file.write_all(dump.as_bytes()).expect("written");
        let output = Command::new(env!("CARGO_BIN_EXE_spokeshave"))
            .args(words)
            .args(["--now", "2026-01-01T01:00:00Z", "-f"])
            .arg(file.path())
            .output()
            .expect("the program runs");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    for class in [format!("{class}{STATUS}{reservation}"), class] {
        let dump = format!("{class}{pool}");
        let planned = plan(&[], &dump);
        let told = &planned.plan["provisioning"];
        let launched = json!([{"nodePool": "general", "replicas": 3, "missing": 3, "nodes": 3}]);
        assert_eq!(told["replicas"], launched, "{}", planned.stderr);
        assert_eq!(told["skippedNodePools"], json!([]));
        let note =
            "note: what is left of the capacity reservations of EC2NodeClass default is not known here: ";
        assert!(planned.stderr.contains(note), "{}", planned.stderr);
        let story = said(&["explain", "nodepool", "general"], &dump);
        assert!(
            story.starts_with("NodePool general: can launch nodes\n"),
            "{story}"
        );
        let found = said(&["doctor"], &dump);
        assert!(!found.contains("pool-unusable"), "{found}");
        // What is not sold at all is not reserved either.
        let unsold = dump.replace("[m5]", "[m0]");
        let told = plan(&[], &unsold).plan;
        assert_eq!(told["provisioning"]["replicas"][0]["nodes"], 0, "{told:#}");
        let found = said(&["doctor"], &unsold);
        assert!(found.contains("pool-unusable"), "{found}");
    }
    let without = plan(&[], &format!("{CLASS}{STATUS}{POOL}")).stderr;
    assert!(!without.contains("capacity reservations"), "{without}");
}

#[test]
fn a_region_that_is_none_is_refused() {
    for wrong in ["Ireland", "eu-west", "eu-west-1b", "us-nowhere-9", ""] {
        let refused = plan(&["--region", wrong], POOL);
        assert_eq!(refused.code, Some(2), "{wrong}");
        assert!(
            refused.stderr.contains("--region")
                && refused.stderr.contains("expected one of af-south-1, ")
                && refused.stderr.contains("eu-west-1, "),
            "{}",
            refused.stderr
        );
    }
}
