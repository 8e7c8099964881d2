//! What goes into `spokeshave simulate`: the files that are named in its answer, those that are not there, and what does not fit into memory.

use std::process::Output;

mod simulated;
use simulated::{POOLS, json_of, program, text, write};

const SCENARIO: &str = "\
apiVersion: simulate.spokeshave.dev/v1alpha1
kind: Scenario
metadata: {name: inputs}
spec:
  start: 2026-03-02T00:00:00Z
  duration: 1h
  seeds: 1
  cluster:
    manifests: [pools]
  workloads:
  - name: rec
    import: {format: csv, file: pods.csv, licence: CC-BY-4.0, columns: {start: begin, cpu: cores}}
  policies:
  - {name: now}
  - {name: other, manifests: [own.yaml]}
";

const POLICY: &str = "\
apiVersion: spokeshave.dev/v1alpha1
kind: DisruptionPolicy
metadata: {name: converge}
spec:
  convergence: {}
";

/// A folder with a scenario and what it names.
fn folder(scenario: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(folder.path(), "pools/default.yaml", POOLS);
    write(folder.path(), "own.yaml", POLICY);
    write(folder.path(), "pods.csv", "begin,cores\n0,1\n600,2\n");
    let path = write(folder.path(), "scenario.yaml", scenario);
    (folder, path)
}

fn simulate(arguments: &[&str]) -> Output {
    let mut command = program();
    command.arg("simulate").args(arguments).env("COLUMNS", "160");
    command.output().expect("the program runs")
}

fn deployment(replicas: u64) -> String {
    format!(
        "\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web, namespace: shop}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec: {{containers: [{{name: main, resources: {{requests: {{cpu: 500m, memory: 1Gi}}}}}}]}}
"
    )
}

#[test]
fn every_file_that_goes_in_is_named_with_its_hash_and_the_licence_of_recordings() {
    let (_folder, path) = folder(SCENARIO);
    let output = simulate(&[&path, "-o", "json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let answer = json_of(&output);
    let inputs = answer["setting"]["inputs"].as_array().expect("inputs");
    let named: Vec<(&str, &str, Option<&str>)> = inputs
        .iter()
        .map(|input| {
            assert_eq!(input["sha256"].as_str().map(str::len), Some(64));
            let field = |name: &str| input[name].as_str();
            (
                field("file").unwrap_or_default(),
                field("format").unwrap_or_default(),
                field("licence"),
            )
        })
        .collect();
    let expected = [
        ("pools/default.yaml", "manifests", None),
        ("pods.csv", "csv", Some("CC-BY-4.0")),
        ("own.yaml", "manifests", None),
    ];
    assert_eq!(named, expected);
}

/// A file that is not there is no mistake of the scenario, which says where it is named.
#[test]
fn files_that_are_not_there_are_told_with_the_line_that_names_them() {
    for (from, to, place) in [
        ("[pools]", "[pools, nope.yaml]", ":9: spec.cluster.manifests[1]: "),
        (
            "[pools]",
            "[pools]\n    snapshot: nope.yaml",
            ":10: spec.cluster.snapshot: ",
        ),
        (
            "[pools]",
            "[pools]\n    catalog: nope.yaml",
            ":10: spec.cluster.catalog: ",
        ),
        ("own.yaml", "nope.yaml", ":15: spec.policies[1].manifests: "),
        ("pods.csv", "nope.yaml", ":12: spec.workloads[0].import.file: "),
    ] {
        let (_folder, path) = folder(&SCENARIO.replacen(from, to, 1));
        let output = simulate(&[&path, "--check"]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{to}: {said}");
        let expected = format!("error: {path}{place}cannot read ");
        assert!(said.contains(&expected), "expected {expected}\nfound {said}");
    }
}

/// What `--check` says of a scenario beside which there is a dump of a Deployment that wants very many pods.
fn refused(scenario: &str) -> (String, String) {
    let (folder, path) = folder(scenario);
    write(folder.path(), "dump.yaml", &deployment(2_000_000_000));
    let output = simulate(&[&path, "--check"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(output.stdout.is_empty(), "{said}");
    (path, said)
}

#[test]
fn what_does_not_fit_into_memory_is_refused_at_its_place() {
    let web = "  - name: web\n    deployments: {cpu: 1, memory: 1Gi}\n    replicas: {low: 1, high: 2, every: 1ms}\n";
    let generated = SCENARIO.replace("  policies:", &format!("{web}  policies:"));
    let (path, said) = refused(&generated.replace("duration: 1h", "duration: 6h"));
    let expected =
        format!("error: {path}:13: spec.workloads[1]: workload \"web\" would have about 21600001 events");
    assert!(said.contains(&expected), "expected {expected}\nfound {said}");

    let (path, said) = refused(&SCENARIO.replace("[pools]", "[pools]\n    snapshot: dump.yaml"));
    let expected = "dump.yaml: with the dump to begin with there would be about 2000000000 pods at once, and at most 1500000 fit; \
                    lower its copies or its replicas, of which shop/web has the most, 2000000000";
    let place = format!("error: {path}:10: spec.cluster.snapshot: ");
    assert!(
        said.contains(&place) && said.contains(expected),
        "expected {expected}\nfound {said}"
    );

    let dumps = "{format: dumps, file: 2026-03-02T00-00.yaml}";
    let csv = "{format: csv, file: pods.csv, licence: CC-BY-4.0, columns: {start: begin, cpu: cores}}";
    let scenario = SCENARIO.replace(csv, dumps);
    let (folder, path) = folder(&scenario);
    write(folder.path(), "2026-03-02T00-00.yaml", &deployment(2_000_000_000));
    let output = simulate(&[&path, "--check"]);
    let said = text(&output.stderr);
    let expected = format!(
        "error: {path}:11: spec.workloads[0]: 2026-03-02T00-00.yaml: with workload \"rec\" there would be"
    );
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains(&expected), "expected {expected}\nfound {said}");
}

/// As of a cluster that Karpenter has been in for years.
#[test]
fn node_pools_of_another_version_are_named_where_none_is_left() {
    let (folder, path) = folder(&SCENARIO.replace("[pools]", "[old.yaml]"));
    let old = format!(
        "{}---\n{}",
        deployment(1),
        POOLS.replace("karpenter.sh/v1", "karpenter.sh/v1beta1")
    );
    let dump = write(folder.path(), "old.yaml", &old);
    let hint = format!(
        "{dump}:11: NodePool default is of karpenter.sh/v1beta1, which is not read: `spokeshave convert -f FILE` makes it the version that is"
    );
    for arguments in [
        vec!["-f", dump.as_str(), "--for", "1h"],
        vec![path.as_str(), "--check"],
    ] {
        let output = simulate(&arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("there is no NodePool in"), "{said}");
        assert!(said.contains(&hint), "expected {hint}\nfound {said}");
    }
    let output = simulate(&["init", "-f", &dump]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stderr);
    assert!(said.contains(&format!("note: {hint}")), "{said}");
}

/// Those of the manifests are not, whatever a dump has of their kind.
#[test]
fn what_is_not_simulated_is_said_to_be_skipped() {
    let scenario = SCENARIO.replace("[pools]", "[pools, old.yaml]\n    snapshot: dump.yaml");
    let (folder, path) = folder(&scenario);
    let old = |replicas: u64| deployment(replicas).replace("apps/v1", "extensions/v1beta1");
    write(folder.path(), "old.yaml", &old(50));
    write(folder.path(), "dump.yaml", &old(3));
    let output = simulate(&[&path, "--check", "-o", "json"]);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let check = json_of(&output);
    assert_eq!(check["peakPods"], 5, "{said}");
    assert!(
        said.contains("skipped 1 object of kind Deployment (extensions/v1beta1)"),
        "{said}"
    );
}

/// A Deployment of an old version is simulated, and no note says the opposite.
#[test]
fn what_is_simulated_is_not_said_to_be_skipped() {
    let (folder, path) = folder(&SCENARIO.replace("[pools]", "[pools]\n    snapshot: dump.yaml"));
    let old = deployment(3).replace("apps/v1", "extensions/v1beta1");
    let controller = "---\napiVersion: v1\nkind: ReplicationController\nmetadata: {name: old, namespace: shop}\n\
                      spec:\n  replicas: 5\n  template: {spec: {containers: [{name: main}]}}\n";
    let other = deployment(50)
        .replace("apps/v1", "serving.knative.dev/v1")
        .replace("name: web,", "name: function,");
    write(
        folder.path(),
        "dump.yaml",
        &format!("{old}{controller}---\n{other}"),
    );
    let output = simulate(&[&path, "--check", "-o", "json"]);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let check = json_of(&output);
    // Three, five, and two of the table.
    assert_eq!(check["peakPods"], 10, "{said}");
    assert!(!said.contains("extensions/v1beta1"), "{said}");
    assert!(
        said.contains("skipped 1 object of kind Deployment (serving.knative.dev/v1)"),
        "{said}"
    );
}
