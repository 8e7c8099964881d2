//! What the program says about input that it cannot use: one line that names what and where, status 1 or 2, and no panic.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Command, Stdio};

struct Refusal {
    code: Option<i32>,
    text: String,
}

fn spokeshave(arguments: &[&str], environment: &[(&str, &str)]) -> Refusal {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spokeshave"));
    command.args(arguments).stdin(Stdio::null());
    for (name, value) in environment {
        command.env(name, value);
    }
    let output = command.output().expect("the program runs");
    Refusal {
        code: output.status.code(),
        text: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

/// A file with a content, and its path.
fn file(content: &str) -> (tempfile::NamedTempFile, String) {
    let mut file = tempfile::NamedTempFile::with_suffix(".yaml").expect("a file");
    file.write_all(content.as_bytes()).expect("it is written");
    let path = file.path().display().to_string();
    (file, path)
}

/// `spokeshave up` with arguments that keep it from coming up.
fn up(arguments: &[&str]) -> Refusal {
    let folder = tempfile::tempdir().expect("a folder");
    let kubeconfig = folder.path().join("kubeconfig");
    let own = ["up", "--exit-after", "1s", "--kubeconfig"];
    let mut all = own.to_vec();
    let path = kubeconfig.display().to_string();
    all.push(&path);
    all.extend(arguments);
    let refusal = spokeshave(&all, &[]);
    assert!(
        !kubeconfig.exists(),
        "no kubeconfig of a server that is not there: {}",
        refusal.text
    );
    refusal
}

#[test]
fn up_names_what_keeps_it_from_coming_up() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address").to_string();
    let (_catalog, catalog) = file("not JSON");
    let (_types, types) = file(r#"[{"name": 3}]"#);
    let (_yaml, yaml) = file("a: [b");
    let (_kindless, kindless) = file("metadata: {name: a}");
    for (arguments, code, parts) in [
        (
            vec!["--listen", &address],
            1,
            vec![&address[..], "in use", "--listen"],
        ),
        (vec!["--listen", "0.0.0.0:0"], 1, vec!["0.0.0.0:0", "loopback"]),
        (vec!["--listen", "somewhere"], 2, vec!["somewhere", "--listen"]),
        (
            vec!["--catalog", "/nonexistent/types.json"],
            1,
            vec!["/nonexistent/types.json", "cannot be read"],
        ),
        (vec!["--catalog", &catalog], 1, vec![&catalog[..], "is not JSON"]),
        (vec!["--catalog", &types], 1, vec![&types[..], "[0].name"]),
        (vec!["-f", "/nonexistent.yaml"], 1, vec!["/nonexistent.yaml"]),
        (vec!["-f", &yaml], 1, vec![&yaml[..], "line 1"]),
        (
            vec!["-f", &kindless],
            1,
            vec![&kindless[..], "apiVersion and kind"],
        ),
        (vec!["--speed", "0"], 2, vec!["--speed", "0.01"]),
    ] {
        let refusal = up(&arguments);
        assert_eq!(refusal.code, Some(code), "{arguments:?}: {}", refusal.text);
        for part in parts {
            assert!(refusal.text.contains(part), "{arguments:?}: {}", refusal.text);
        }
        assert!(!refusal.text.contains("panicked"), "{}", refusal.text);
    }
}

/// Whoever gives a demo so much time asks whether it is told: its scenes alone rest for longer than a second.
#[test]
fn a_demo_that_is_not_told_in_its_time_is_an_error() {
    let refusal = up(&["--demo", "--no-web"]);
    assert_eq!(refusal.code, Some(1), "{}", refusal.text);
    assert!(
        refusal.text.contains("error: the demo was not told within 1s"),
        "{}",
        refusal.text
    );
}

#[test]
fn a_manifest_that_the_server_refuses_is_named_with_the_servers_words_once() {
    let (_pool, pool) = file(
        "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: bad}\nspec: {template: {spec: {requirements: 3}}}\n",
    );
    let refusal = up(&["-f", &pool]);
    assert_eq!(refusal.code, Some(1));
    let words = "NodePool.karpenter.sh \"bad\" is invalid: [spec.template.spec.requirements: Invalid value: \"integer\"";
    assert_eq!(refusal.text.matches(words).count(), 1, "{}", refusal.text);
    assert!(refusal.text.contains(&pool), "{}", refusal.text);
    assert!(
        !refusal.text.contains("Status {"),
        "no types of our own: {}",
        refusal.text
    );
}

#[test]
fn the_operator_names_a_kubeconfig_that_leads_nowhere() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = format!("https://{}", free.local_addr().expect("its address"));
    drop(free);
    let (_nowhere, nowhere) = file(&format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{{name: a, cluster: {{server: \"{server}\"}}}}]\n\
         users: [{{name: a, user: {{token: x}}}}]\ncontexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n"
    ));
    let (_broken, broken) = file("apiVersion: v1\nkind: Config\ncurrent-context: other\n");
    for (kubeconfig, parts) in [
        (&nowhere[..], vec![&server[..], "does not answer", "refused"]),
        ("/nonexistent/kubeconfig", vec!["/nonexistent/kubeconfig"]),
        (&broken, vec![&broken[..], "cannot be used"]),
    ] {
        let refusal = spokeshave(
            &["operator", "--cloud-provider", "kwok", "--kubeconfig", kubeconfig],
            &[],
        );
        assert_eq!(refusal.code, Some(1), "{}", refusal.text);
        for part in parts {
            assert!(refusal.text.contains(part), "{kubeconfig}: {}", refusal.text);
        }
    }
}

/// Whoever names a context means one cluster: a command that writes must not end at another one.
#[test]
fn a_context_is_looked_for_in_every_kubeconfig_and_never_in_a_pods_service_account() {
    let kubeconfig = |name: &str, port: u16| {
        file(&format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: {name}\nclusters: [{{name: {name}, cluster: {{server: \"http://127.0.0.1:{port}\"}}}}]\n\
             contexts: [{{name: {name}, context: {{cluster: {name}}}}}]\n"
        ))
    };
    let ((_shop, shop), (_games, games)) = (kubeconfig("shop", 9), kubeconfig("games", 7));
    let both = format!("{shop}:{games}");
    let unknown = format!(
        "error: the kubeconfig {both} has no context \"game\"; did you mean games? it has: shop, games\n"
    );
    let without = "error: --context shop: there is no kubeconfig, and a pod's service account has no contexts; name a file with --kubeconfig, or leave --context out";
    // As for kubectl, files of the list that are not there are passed over. One that is broken is no reason to go to another cluster.
    let (none, some) = ("/nonexistent/config", format!("/nonexistent/config:{both}"));
    let (_broken, broken) = file("contexts: 3\n");
    let broken = format!("{none}:{broken}:{shop}");
    let unusable = format!("error: the kubeconfig {broken} cannot be used");
    for (variable, context, expected) in [
        (&both[..], "shop", "error: the cluster at http://127.0.0.1:9/"),
        (&some, "games", "error: the cluster at http://127.0.0.1:7/"),
        (&some, "", "error: the cluster at http://127.0.0.1:9/"),
        (&both, "game", &unknown),
        ("", "shop", without),
        (none, "shop", "error: cannot read the kubeconfig"),
        (&broken, "", &unusable),
    ] {
        let option = (!context.is_empty()).then_some(["--context", context]);
        for command in [&["thaw"][..], &["rollout", "status"], &["top", "--once"]] {
            // As in a pod, which has no home either.
            let environment = [
                ("KUBECONFIG", variable),
                ("HOME", "/nonexistent"),
                ("KUBERNETES_SERVICE_HOST", "127.0.0.1"),
                ("KUBERNETES_SERVICE_PORT", "9"),
            ];
            let arguments = [command, option.as_slice().as_flattened()].concat();
            let refusal = spokeshave(&arguments, &environment);
            assert_eq!(refusal.code, Some(1), "{command:?}: {}", refusal.text);
            let said = &refusal.text;
            assert!(said.starts_with(expected), "{command:?} {context}: {said}");
        }
    }
}

/// As the kubeconfig of a cloud is on a machine that lacks the cloud's own program.
#[test]
fn a_program_for_credentials_that_is_not_there_is_named_with_its_kubeconfig() {
    let text = "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{name: a, cluster: {server: \"http://127.0.0.1:9\"}}]\n\
         users: [{name: a, user: {exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: no-such-program, installHint: \"it is on\\n the shelf\"}}}]\n\
         contexts: [{name: a, context: {cluster: a, user: a}}]\n";
    let (_whole, whole) = file(text);
    let (_empty, empty) = file(&text.replace("current-context: a", "current-context: \"\""));
    let (_absent, absent) = file(&text.replace("current-context: a\n", ""));
    let no_context = "cannot be used: it has no current-context; `kubectl config use-context NAME` sets one";
    for (kubeconfig, first, last) in [
        (
            &whole,
            "has its credentials from the program \"no-such-program\", which cannot be run: ",
            "; install it (it is on the shelf), or name another kubeconfig with --kubeconfig\n",
        ),
        (&empty, no_context, "\n"),
        (&absent, no_context, "\n"),
    ] {
        let first = format!("error: the kubeconfig {kubeconfig} {first}");
        for refusal in [
            spokeshave(&["top", "--once", "--kubeconfig", &kubeconfig[..]], &[]),
            spokeshave(&["top", "--once"], &[("KUBECONFIG", &kubeconfig[..])]),
        ] {
            assert_eq!(refusal.code, Some(1), "{}", refusal.text);
            let said = &refusal.text;
            assert!(said.starts_with(&first) && said.ends_with(last), "{said}");
        }
    }
}

/// As that of a cloud does once its session has expired. What it has written to its standard output may be a token.
#[test]
fn a_program_for_credentials_that_fails_is_named_with_its_kubeconfig_and_what_it_says() {
    let with = |script: &str| {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{{name: a, cluster: {{server: \"http://127.0.0.1:9\"}}}}]\n\
             users: [{{name: a, user: {{exec: {{apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: sh, args: [\"-c\", \"{script}\"]}}}}}}]\n\
             contexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n"
        )
    };
    for (script, ending) in [
        (
            "echo s3cret; echo first >&2; echo the session has expired >&2; echo >&2; exit 3",
            ", which ended with exit status: 3: the session has expired\n",
        ),
        ("echo s3cret; exit 4", ", which ended with exit status: 4\n"),
        ("echo s3cret", ", whose answer is no ExecCredential\n"),
    ] {
        let (_file, kubeconfig) = file(&with(script));
        let refusal = spokeshave(&["top", "--once", "--kubeconfig", &kubeconfig], &[]);
        let said = &refusal.text;
        assert_eq!(refusal.code, Some(1), "{said}");
        let expected =
            format!("error: the kubeconfig {kubeconfig} has its credentials from the program \"sh\"{ending}");
        assert_eq!(*said, expected);
    }
}

#[test]
fn p_15_a_malformed_environment_variable_is_named() {
    let refusal = spokeshave(
        &["operator", "--cloud-provider", "kwok"],
        &[("BATCH_MAX_DURATION", "abc")],
    );
    assert_eq!(refusal.code, Some(1), "{}", refusal.text);
    for part in ["BATCH_MAX_DURATION", "\"abc\"", "10s"] {
        assert!(refusal.text.contains(part), "{}", refusal.text);
    }
}

/// What kube-scheduler itself reads, with arguments of one plugin.
fn kube_scheduler(version: &str, plugin: &str, args: &str) -> String {
    format!(
        "apiVersion: kubescheduler.config.k8s.io/{version}\nkind: KubeSchedulerConfiguration\nprofiles:\n- schedulerName: batch\n  pluginConfig:\n  - {{name: {plugin}, args: {args}}}\n"
    )
}

#[test]
fn p_121_b_60_a_scheduler_config_that_cannot_be_used_is_named_before_anything_starts() {
    let zone = "topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule";
    let one = |constraint: &str| format!("podTopologySpread: {{defaultConstraints: [{{{constraint}}}]}}\n");
    let (_old, old) = file(&kube_scheduler("v1beta3", "PodTopologySpread", "{}"));
    let (_typed, typed) = file(&kube_scheduler("v1", "NodeResourcesFit", "{ignoredResources: 7}"));
    let near = "{key: team, operator: Near, values: [a]}";
    let near = format!(
        "{{addedAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{{matchExpressions: [{near}]}}]}}}}}}"
    );
    let (_near, near) = file(&kube_scheduler("v1", "NodeAffinity", &near));
    let list = format!("{{defaultingType: List, defaultConstraints: [{{maxSkew: 0, {zone}}}]}}");
    let (_list, list) = file(&kube_scheduler("v1", "PodTopologySpread", &list));
    let (_cut, cut) = file("podTopologySpread:\n  defaultConstraints: [{maxSkew: 1,");
    let (_misspelt, misspelt) = file("podTopologySpread:\n  defaultConstraint: []\n");
    let (_skew, skew) = file(&one(&format!("maxSkew: 0, {zone}")));
    let (_selector, selector) = file(&one(&format!("maxSkew: 1, labelSelector: {{}}, {zone}")));
    let (_twice, twice) = file(&format!(
        "podTopologySpread: {{defaultConstraints: [{{maxSkew: 1, {zone}}}, {{maxSkew: 2, {zone}}}]}}"
    ));
    let rule = "validating scheduler config, podTopologySpread.defaultConstraints[";
    for (path, parts) in [
        ("/nonexistent/spread.yaml", vec!["cannot read"]),
        (
            &old,
            vec![
                "KubeSchedulerConfiguration of kubescheduler.config.k8s.io/v1beta3",
                "only kubescheduler.config.k8s.io/v1 is read",
            ],
        ),
        (
            &typed,
            vec!["profiles[0] (batch), plugin NodeResourcesFit: args.ignoredResources: invalid type"],
        ),
        (
            &near,
            vec![
                "profiles[0] (batch), plugin NodeAffinity: args.addedAffinity.",
                "matchExpressions[0].operator",
            ],
        ),
        (
            &list,
            vec!["profiles[0] (batch), plugin PodTopologySpread: args.defaultConstraints[0].maxSkew must"],
        ),
        (&cut, vec!["is not a scheduler config"]),
        (&misspelt, vec!["defaultConstraint"]),
        (&skew, vec![rule, "0].maxSkew"]),
        (&selector, vec![rule, "0].labelSelector"]),
        (&twice, vec![rule, "1]"]),
    ] {
        let operator: &[&str] = &[
            "operator",
            "--cloud-provider",
            "kwok",
            "--kubeconfig",
            "/nonexistent/kubeconfig",
        ];
        let (_dump, dump) = file("{\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": []}");
        for command in [operator, &["plan", "-f", &dump]] {
            let refusal = spokeshave(&[command, &["--scheduler-config", path]].concat(), &[]);
            assert_eq!(refusal.code, Some(1), "{path}: {}", refusal.text);
            for part in parts.iter().copied().chain([path]) {
                assert!(refusal.text.contains(part), "{part}: {}", refusal.text);
            }
            assert_eq!(refusal.text.lines().count(), 1, "{}", refusal.text);
        }
    }
}

/// A client that speaks no TLS, or leaves in the middle of a handshake, does not disturb the others.
#[test]
fn the_server_outlives_clients_that_speak_nonsense() {
    let folder = tempfile::tempdir().expect("a folder");
    let kubeconfig = folder.path().join("kubeconfig");
    let mut child = Command::new(env!("CARGO_BIN_EXE_spokeshave"))
        .args(["up", "--bare", "--exit-after", "60s", "--kubeconfig"])
        .arg(&kubeconfig)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let text = loop {
        match std::fs::read_to_string(&kubeconfig) {
            Ok(text) => break text,
            Err(_) if child.try_wait().expect("a state").is_none() => std::thread::yield_now(),
            Err(error) => panic!("it ended: {error}"),
        }
    };
    let address = text
        .split("https://")
        .nth(1)
        .and_then(|rest| rest.split_whitespace().next())
        .expect("an address")
        .trim_matches('"');
    for nonsense in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\x16\x03\x01", &[0; 300]] {
        let mut stream = std::net::TcpStream::connect(address).expect("a connection");
        drop(stream.write_all(nonsense));
        // It may have been cut off already.
        drop(stream.shutdown(std::net::Shutdown::Write));
        drop(stream.read_to_end(&mut Vec::new()));
    }
    assert!(child.try_wait().expect("a state").is_none(), "it goes on");
    std::net::TcpStream::connect(address).expect("and answers");
    child.kill().expect("it ends");
    let mut said = String::new();
    let mut errors = child.stderr.take().expect("piped");
    errors.read_to_string(&mut said).expect("UTF-8");
    child.wait().expect("it ended");
    assert!(!said.contains("panicked"), "{said}");
}

/// A cluster that runs until it is dropped.
struct Running {
    process: std::process::Child,
    kubeconfig: std::path::PathBuf,
    _folder: tempfile::TempDir,
    _stderr: std::io::Lines<std::io::BufReader<std::process::ChildStderr>>,
}

impl Running {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let kubeconfig = folder.path().join("kubeconfig");
        let mut process = Command::new(env!("CARGO_BIN_EXE_spokeshave"))
            .args([
                "up",
                "--bare",
                "--no-operator",
                "--exit-after",
                "10m",
                "--kubeconfig",
            ])
            .arg(&kubeconfig)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program runs");
        let stderr = process.stderr.take().expect("piped");
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(stderr));
        let ready = lines
            .by_ref()
            .any(|line| line.is_ok_and(|line| line.starts_with("Cluster ready")));
        assert!(ready, "the cluster comes up");
        Self {
            process,
            kubeconfig,
            _folder: folder,
            _stderr: lines,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Two clusters under one name would be mistaken for each other, and the end of one would take the other's kubeconfig along.
#[test]
fn a_second_cluster_does_not_take_the_name_of_one_that_runs() {
    let running = Running::start();
    let path = running.kubeconfig.display().to_string();
    let before = std::fs::read_to_string(&running.kubeconfig).expect("written");
    let arguments = [
        "up",
        "--bare",
        "--no-operator",
        "--exit-after",
        "1s",
        "--kubeconfig",
        &path,
    ];
    let second = spokeshave(&arguments, &[]);
    assert_eq!(second.code, Some(1), "{}", second.text);
    for part in ["another `spokeshave up` is running", &path, "--kubeconfig"] {
        assert!(second.text.contains(part), "{part} is not in: {}", second.text);
    }
    assert_eq!(std::fs::read_to_string(&running.kubeconfig).ok(), Some(before));
    // A killed one leaves its file behind, which is harmless.
    let mut ended = running;
    drop(ended.process.kill());
    drop(ended.process.wait());
    let third = spokeshave(&arguments, &[]);
    assert_eq!(third.code, Some(0), "{}", third.text);
    assert!(!ended.kubeconfig.exists(), "its own file goes with it");
}

/// Without a region there is no AWS to talk to: the operator fails with an error, whatever the test machine's AWS configuration. A build without the calls
/// to AWS says how to get them.
#[test]
fn the_operator_on_aws_says_what_it_lacks() {
    let running = Running::start();
    let home = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_spokeshave"));
    command.args(["operator", "--cloud-provider", "aws", "--cluster-name", "c"]);
    command.arg("--kubeconfig").arg(&running.kubeconfig);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("AWS_")) {
        command.env_remove(name);
    }
    command.envs([("METRICS_PORT", "0"), ("HEALTH_PROBE_PORT", "0")]);
    command
        .env("HOME", home.path())
        .env("AWS_EC2_METADATA_DISABLED", "true");
    let output = command.stdin(Stdio::null()).output().expect("the program runs");
    let text = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(1), "{text}");
    let expected = match cfg!(feature = "aws") {
        true => ["no region", "set AWS_REGION to the region of the cluster"],
        false => ["built without the calls to AWS", "--features aws"],
    };
    for part in expected {
        assert!(text.contains(part), "{text}");
    }
}

/// The examples of another cloud have a kind that is not served here, and much that is of use without it.
#[test]
fn up_skips_kinds_that_it_does_not_know() {
    let foreign = "apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {name: default}\n";
    let known = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
    let (_mixed, mixed) = file(&format!("{foreign}---\n{known}"));
    let (_alone, alone) = file(foreign);
    for (path, code) in [(&mixed, 0), (&alone, 1)] {
        let answer = up(&["--bare", "--no-operator", "-f", path]);
        assert_eq!(answer.code, Some(code), "{}", answer.text);
        let note = format!("note: {path}");
        for part in [
            &note,
            "skipped EC2NodeClass \"default\"",
            "karpenter.k8s.aws/v1",
            "KWOKNodeClass",
        ] {
            assert!(answer.text.contains(part), "{part} is not in: {}", answer.text);
        }
    }
}

/// As in the operator: whoever cannot read a policy does not know that it is no freeze.
#[test]
fn a_policy_that_cannot_be_read_counts_as_a_freeze_in_plans_and_budgets() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/consolidation.yaml");
    let example = std::fs::read_to_string(example).expect("an example");
    let policy = "---\napiVersion: spokeshave.dev/v1alpha1\nkind: DisruptionPolicy\nmetadata: {name: odd}\nspec: {budgets: 7}\n";
    let (_file, path) = file(&format!("{example}{policy}"));
    let now = "2026-01-01T01:00:00Z";
    for command in ["plan", "budgets"] {
        let said = spokeshave(&[command, "-f", path.as_str(), "--now", now], &[]);
        for part in [
            "DisruptionPolicy odd cannot be read: spec.budgets: ",
            "; counts as a freeze of the NodePools that it selects",
        ] {
            assert!(said.text.contains(part), "{command}: {part:?} in {}", said.text);
        }
    }
    let output = Command::new(env!("CARGO_BIN_EXE_spokeshave"))
        .args(["plan", "-f", path.as_str(), "-o", "json", "--now", now])
        .output()
        .expect("the program runs");
    let plan: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a plan");
    assert_eq!(plan["disruption"]["commands"], serde_json::json!([]));
    assert_eq!(plan["disruption"]["stops"][0]["policy"], "odd");
}

/// `--help` promises 2 for a wrong command line, also where only the command itself can see what is wrong with it.
#[test]
fn a_wrong_command_line_is_exit_code_2() {
    let (_namespace, namespace) = file("apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n");
    for (arguments, part) in [
        (vec!["explain", "node"], "expected a name after node"),
        (
            vec!["explain", "foo", "bar"],
            "there is no story about kind \"foo\"",
        ),
        (vec!["explain", "node/"], "expected a name after the kind"),
        (vec!["man", "nope"], "there is no command \"nope\""),
        (
            vec!["plan", "-f", &namespace, "--region", "mars-1"],
            "AWS has no such region",
        ),
        // Whatever else is wrong.
        (
            vec!["plan", "-f", "/nonexistent.yaml", "--region", "mars-1"],
            "AWS has no such region",
        ),
        (
            vec!["top", "--kubeconfig", "/nonexistent", "--region", "mars-1"],
            "AWS has no such region",
        ),
        (
            vec!["plan", "-f", "/nonexistent.yaml", "-f", "-", "-f", "-"],
            "standard input can be read only once",
        ),
        (vec!["record", "--every", "0s"], "expected at least 1s"),
        (
            vec!["freeze", "--because", ""],
            "a value is required for '--because",
        ),
        (
            vec!["explain", "pod", "shop/web-1", "-n", "default"],
            "shop/web-1 is in namespace shop, and --namespace says default",
        ),
        (vec!["convert", "--role", "x"], "--filename <FILE|DIR>|--live"),
    ] {
        let refusal = spokeshave(&arguments, &[]);
        assert_eq!(refusal.code, Some(2), "{arguments:?}: {}", refusal.text);
        assert!(refusal.text.contains(part), "{arguments:?}: {}", refusal.text);
    }
}

#[test]
fn a_scenario_of_a_cluster_writes_over_no_file_that_nobody_has_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let dump = folder.path().join("cluster.json");
    std::fs::write(&dump, "mine").expect("written");
    let output = Command::new(env!("CARGO_BIN_EXE_spokeshave"))
        .args(["simulate", "init"])
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .expect("the program runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cluster.json exists already"), "{said}");
    assert_eq!(std::fs::read_to_string(&dump).expect("it is there"), "mine");
}
