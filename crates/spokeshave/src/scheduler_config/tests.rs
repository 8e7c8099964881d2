//! What is read of the file of `--scheduler-config`, and what is said about it.

use serde_json::{Value, json};
use spokeshave_model::Pod;
use spokeshave_model::scheduler_profiles::SchedulerProfile;

use super::*;

#[test]
fn p_121_the_file_is_read_strictly() {
    let text = "podTopologySpread:\n  defaultConstraints:\n  - {maxSkew: 2, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, nodeTaintsPolicy: Honor}\n";
    let config = parse(text).expect("a configuration");
    let profile = config.profiles.of(&Pod::default()).expect("one for all pods");
    let constraints = &profile.default_constraints;
    assert_eq!(constraints.len(), 1);
    assert_eq!(
        (constraints[0].max_skew, constraints[0].topology_key.as_str()),
        (2, "zone")
    );
    assert_eq!(config.notes().count(), 0);
    for (text, problem) in [
        ("podTopologySpread: {defaultConstraint: []}", "defaultConstraint"),
        (
            "podTopologySpread: {defaultConstraints: [{maxSkew: 1, topologyKey: zone}]}",
            "whenUnsatisfiable",
        ),
        ("kind: Something", "kind"),
    ] {
        let error = format!("{:#}", parse(text).expect_err(text));
        assert!(error.contains(problem), "{text}: {error}");
    }
}

#[test]
fn b_60_versions_that_are_not_read_are_named_with_the_one_that_is() {
    for (text, problems) in [
        (
            "kind: KubeSchedulerConfiguration",
            ["without apiVersion", "expected kubescheduler.config.k8s.io/v1"],
        ),
        (
            "kind: KubeSchedulerConfiguration\napiVersion: kubescheduler.config.k8s.io/v1beta3",
            [
                "of kubescheduler.config.k8s.io/v1beta3",
                "only kubescheduler.config.k8s.io/v1 is read",
            ],
        ),
        (
            "kind: KubeSchedulerConfiguration\napiVersion: componentconfig/v1alpha1",
            [
                "componentconfig/v1alpha1",
                "expected kubescheduler.config.k8s.io/v1",
            ],
        ),
        (
            "kind: NodeResourcesFitArgs\napiVersion: kubescheduler.config.k8s.io/v1",
            ["NodeResourcesFitArgs", "expected KubeSchedulerConfiguration"],
        ),
    ] {
        let error = format!("{:#}", parse(text).expect_err(text));
        for problem in problems {
            assert!(error.contains(problem), "{problem}: {error}");
        }
    }
}

/// A file with some fields beside its header.
fn file(fields: Value) -> Result<SchedulerConfig> {
    let mut file = json!({"apiVersion": VERSION, "kind": KIND});
    if let (Some(file), Value::Object(fields)) = (file.as_object_mut(), fields) {
        file.extend(fields);
    }
    parse(&file.to_string())
}

/// One profile whose plugin has these arguments.
fn plugin(name: &str, args: Value) -> Result<SchedulerConfig> {
    file(json!({"profiles": [{"schedulerName": "batch", "pluginConfig": [{"name": name, "args": args}]}]}))
}

/// What pods of a scheduler get.
fn profile<'a>(config: &'a SchedulerConfig, scheduler: &str) -> Option<&'a SchedulerProfile> {
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [], "schedulerName": scheduler}});
    let pod: Pod = serde_json::from_value(pod).expect("a pod written by hand");
    config.profiles.of(&pod)
}

fn zone(when: &str) -> Value {
    json!({"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": when})
}

fn required(key: &str, value: &str) -> Value {
    json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}]}})
}

/// As kubeadm and the documentation of Kubernetes write it, with all that does not matter here.
const GENUINE: &str = "
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: true, resourceLock: leases}
clientConnection: {kubeconfig: /etc/kubernetes/scheduler.conf, qps: 50}
parallelism: 16
percentageOfNodesToScore: 50
podInitialBackoffSeconds: 1
profiles:
- schedulerName: default-scheduler
  percentageOfNodesToScore: null
  plugins:
    score: {disabled: [{name: '*'}], enabled: [{name: NodeResourcesFit, weight: 1}]}
  pluginConfig:
  - name: PodTopologySpread
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: PodTopologySpreadArgs
      defaultingType: List
      defaultConstraints:
      - {maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: ScheduleAnyway}
  - name: InterPodAffinity
    args: {hardPodAffinityWeight: 100}
- schedulerName: batch
  plugins:
    multiPoint: {enabled: [{name: Coscheduling}], disabled: [{name: NodePorts}]}
  pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 2}, {name: memory}]}
      ignoredResources: [example.com/licence]
      ignoredResourceGroups: [vendor.com]
  - name: NodeAffinity
    args: {addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: team, operator: In, values: [batch]}]}]}}}
  - name: Coscheduling
    args: {permitWaitingTimeSeconds: 10}
extenders:
- urlPrefix: http://127.0.0.1:8888/
  filterVerb: filter
  managedResources: [{name: example.com/fpga, ignoredByScheduler: true}, {name: example.com/nic}]
";

#[test]
fn b_60_a_genuine_file_is_read_and_what_is_not_modelled_is_said() {
    let config = parse(GENUINE).expect("a configuration");
    let spread = profile(&config, "default-scheduler").expect("it adds something");
    assert_eq!(spread.default_constraints.len(), 1);
    assert!(spread.added_affinity.is_none() && spread.ignored_resources.has("example.com/fpga"));
    let batch = profile(&config, "batch").expect("it adds something");
    assert!(batch.default_constraints.is_empty());
    let added = batch.added_affinity.as_ref().expect("it is added");
    assert_eq!(added.required().len(), 1);
    for (name, expected) in [
        ("example.com/licence", false),
        ("vendor.com/any", true),
        ("example.com/fpga", true),
        ("example.com/nic", false),
    ] {
        assert_eq!(batch.ignored_resources.has(name), expected, "{name}");
    }
    assert!(profile(&config, "elsewhere").is_none());
    assert_eq!(config.scoring.len(), 1, "only what is written");
    assert_eq!(
        config.scoring["batch"].to_string(),
        "MostAllocated (cpu 2, memory 1)"
    );
    assert_eq!(
        config.warnings,
        [
            "kube-scheduler asks 1 extender (http://127.0.0.1:8888/), which is not modelled: pods may go elsewhere than planned, or nowhere",
            "batch does not filter nodes by NodePorts: what pods ask of nodes in this way is heeded all the same",
            "batch uses Coscheduling, which is not modelled: its pods may go elsewhere than planned, or nowhere",
            "batch looks for example.com/licence on nodes all the same: what extenders manage stands in the place of ignoredResources",
        ]
    );
    assert_eq!(
        config.remarks,
        [
            "pods of default-scheduler need no room on nodes for example.com/fpga, which it does not look for",
            "nodes for pods of batch must also have team In [batch] (addedAffinity)",
            "pods of batch need no room on nodes for example.com/fpga, vendor.com/*, which it does not look for",
            "batch scores nodes by MostAllocated (cpu 2, memory 1): no decision reads that",
        ]
    );
}

#[test]
fn b_60_a_file_that_says_nothing_of_pods_adds_nothing() {
    for fields in [
        json!({}),
        json!({"profiles": null}),
        json!({"profiles": []}),
        json!({"profiles": [{}]}),
        json!({"profiles": [{"pluginConfig": [{"name": "NodeAffinity"}, {"name": "PodTopologySpread", "args": {"defaultingType": "System"}}]}]}),
        json!({"profiles": [{"pluginConfig": [{"name": "NodeAffinity", "args": {"addedAffinity": {}}}]}], "leaderElection": {"leaderElect": false}}),
    ] {
        let config = file(fields.clone()).expect("a configuration");
        assert_eq!(*config.profiles, SchedulerProfiles::default(), "{fields}");
        assert_eq!(config.notes().count(), 0, "{fields}");
    }
}

#[test]
fn b_60_kube_schedulers_own_spread_is_not_mirrored_and_a_list_is() {
    let list = |when: &str| json!({"defaultingType": "List", "defaultConstraints": [zone(when)]});
    for when in ["DoNotSchedule", "ScheduleAnyway"] {
        let config = plugin("PodTopologySpread", list(when)).expect("a configuration");
        assert!(config.profiles.have_default_constraints(), "{when}");
    }
    for kind in ["", "System", "List"] {
        let config = plugin("PodTopologySpread", json!({"defaultingType": kind}));
        assert!(
            !config
                .expect("a configuration")
                .profiles
                .have_default_constraints(),
            "{kind}"
        );
    }
}

#[test]
fn b_60_what_kube_scheduler_overrides_is_taken_as_it_does() {
    let listed = json!({"ignoredResources": ["example.com/licence"]});
    let alone = plugin("NodeResourcesFit", listed.clone()).expect("a configuration");
    let profiles =
        json!([{"schedulerName": "batch", "pluginConfig": [{"name": "NodeResourcesFit", "args": listed}]}]);
    let managed = json!([{"managedResources": [{"name": "example.com/fpga", "ignoredByScheduler": true}]}]);
    let beside = file(json!({"profiles": profiles, "extenders": managed})).expect("a configuration");
    let ignores = |config: &SchedulerConfig, resource: &str| {
        let batch = profile(config, "batch").expect("it adds something");
        batch.ignored_resources.has(resource)
    };
    assert!(ignores(&alone, "example.com/licence") && !ignores(&beside, "example.com/licence"));
    assert!(ignores(&beside, "example.com/fpga"));
    let mut constraint = zone("DoNotSchedule");
    constraint["matchLabelKeys"] = json!(["pod-template-hash"]);
    let spread = json!({"defaultingType": "List", "defaultConstraints": [constraint]});
    let spread = plugin("PodTopologySpread", spread).expect("a configuration");
    let batch = profile(&spread, "batch").expect("it adds something");
    assert_eq!(batch.default_constraints[0].match_label_keys, None);
}

#[test]
fn b_60_a_single_profile_without_a_name_is_of_the_default_scheduler() {
    let named =
        json!({"pluginConfig": [{"name": "NodeAffinity", "args": {"addedAffinity": required("team", "a")}}]});
    let config = file(json!({"profiles": [named]})).expect("a configuration");
    assert!(profile(&config, "default-scheduler").is_some() && profile(&config, "batch").is_none());
}

#[test]
fn b_60_affinity_that_no_node_meets_is_said() {
    let host = plugin(
        "NodeAffinity",
        json!({"addedAffinity": required("kubernetes.io/hostname", "a")}),
    );
    let host = host.expect("a configuration").warnings.join("\n");
    assert!(
        host.contains("no node is launched with label kubernetes.io/hostname"),
        "{host}"
    );
    let blank = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}});
    let blank = plugin("NodeAffinity", json!({"addedAffinity": blank})).expect("a configuration");
    assert_eq!(
        blank.warnings,
        ["no node meets the addedAffinity of batch: none is launched for its pods"]
    );
    assert!(blank.remarks.is_empty() && profile(&blank, "batch").is_some());
}

#[test]
fn b_60_fields_that_nobody_knows_are_named_and_not_refused() {
    let fields = json!({"profile": [], "profiles": [{"schedulerName": "batch", "pluginConfigs": [],
        "pluginConfig": [{"name": "NodeResourcesFit", "args": {"ignoredResource": ["a"]}}]}]});
    let config = file(fields).expect("a configuration");
    assert_eq!(
        config.warnings,
        [
            "profile is not known here, and not read",
            "profiles[0] (batch).pluginConfigs is not known here, and not read",
            "profiles[0] (batch), plugin NodeResourcesFit: args.ignoredResource is not known here, and not read",
        ]
    );
}

#[test]
fn b_60_wrong_types_and_values_are_named_with_profile_plugin_and_field() {
    let spread = |args: Value| plugin("PodTopologySpread", args);
    let fit = |args: Value| plugin("NodeResourcesFit", args);
    let affinity = |added: Value| plugin("NodeAffinity", json!({"addedAffinity": added}));
    let scored = |strategy: Value| fit(json!({"scoringStrategy": strategy}));
    let shaped = |shape: Value| {
        scored(json!({"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape": shape}}))
    };
    let of = |plugin: &str, problem: &str| format!("profiles[0] (batch), plugin {plugin}: args.{problem}");
    let named = |names: [&str; 2]| {
        let profiles = names.map(|name| json!({"schedulerName": name}));
        file(json!({"profiles": profiles}))
    };
    for (read, expected) in [
        (
            file(json!({"profiles": {}})),
            "profiles: invalid type: map".to_owned(),
        ),
        (
            file(json!({"profiles": [{"plugins": {"filter": 7}}]})),
            "profiles[0].plugins.filter".to_owned(),
        ),
        (
            file(json!({"profiles": [{"plugins": {"filter": {"disable": []}}}]})),
            "profiles[0].plugins.filter".to_owned(),
        ),
        (
            file(json!({"profiles": [{"pluginConfig": [{}]}]})),
            "profiles[0].pluginConfig[0]: missing field `name`".to_owned(),
        ),
        (
            named(["batch", "batch"]),
            "profiles[1].schedulerName is \"batch\" for the second time".to_owned(),
        ),
        (
            file(json!({"profiles": [{}, {}]})),
            "profiles[0].schedulerName is missing".to_owned(),
        ),
        (
            file(json!({"profiles": [{"pluginConfig": [{"name": "NodeName"}, {"name": "NodeName"}]}]})),
            "profiles[0] (default-scheduler): pluginConfig names \"NodeName\" twice".to_owned(),
        ),
        (
            fit(json!("x")),
            of("NodeResourcesFit", "").replace("args.", "args: invalid type: string"),
        ),
        (
            fit(json!({"kind": "NodeAffinityArgs"})),
            of("NodeResourcesFit", "kind is \"NodeAffinityArgs\""),
        ),
        (
            fit(json!({"ignoredResources": [7]})),
            of(
                "NodeResourcesFit",
                "ignoredResources[0]: invalid type: integer `7`",
            ),
        ),
        (
            fit(json!({"ignoredResources": ["a b"]})),
            of("NodeResourcesFit", "ignoredResources[0] is not"),
        ),
        (
            fit(json!({"ignoredResourceGroups": ["a/b"]})),
            of("NodeResourcesFit", "ignoredResourceGroups[0] is"),
        ),
        (
            scored(json!({})),
            of(
                "NodeResourcesFit",
                "scoringStrategy.type is \"\"; expected one of LeastAllocated",
            ),
        ),
        (
            scored(json!({"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 101}]})),
            of("NodeResourcesFit", "scoringStrategy.resources[0].weight is 101"),
        ),
        (
            scored(json!({"type": "RequestedToCapacityRatio"})),
            of(
                "NodeResourcesFit",
                "scoringStrategy.requestedToCapacityRatio is missing",
            ),
        ),
        (
            scored(json!({"type": "MostAllocated", "requestedToCapacityRatio": {}})),
            of(
                "NodeResourcesFit",
                "scoringStrategy.requestedToCapacityRatio is there",
            ),
        ),
        (
            shaped(json!([])),
            of(
                "NodeResourcesFit",
                "scoringStrategy.requestedToCapacityRatio.shape is empty",
            ),
        ),
        (
            shaped(json!([{"utilization": 50, "score": 1}, {"utilization": 50, "score": 2}])),
            of(
                "NodeResourcesFit",
                "scoringStrategy.requestedToCapacityRatio.shape[1].utilization is 50",
            ),
        ),
        (
            shaped(json!([{"utilization": 50, "score": 11}])),
            of(
                "NodeResourcesFit",
                "scoringStrategy.requestedToCapacityRatio.shape[0].score is 11",
            ),
        ),
        (
            spread(json!({"defaultingType": "Some"})),
            of("PodTopologySpread", "defaultingType is \"Some\""),
        ),
        (
            spread(json!({"defaultConstraints": [zone("DoNotSchedule")]})),
            of("PodTopologySpread", "defaultingType is System"),
        ),
        (
            spread(json!({"defaultingType": "List", "defaultConstraints": [zone("Perhaps")]})),
            of(
                "PodTopologySpread",
                "defaultConstraints[0].whenUnsatisfiable must be",
            ),
        ),
        (
            affinity(json!({"requiredDuringSchedulingIgnoreDuringExecution": {}})),
            of(
                "NodeAffinity",
                "addedAffinity.requiredDuringSchedulingIgnoreDuringExecution is not a field",
            ),
        ),
        (
            affinity(required("a b", "c")),
            of(
                "NodeAffinity",
                "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].key is not",
            ),
        ),
        (
            file(json!({"extenders": [{"managedResources": [{"name": "cpu"}]}]})),
            "extenders[0].managedResources[0].name is \"cpu\"".to_owned(),
        ),
    ] {
        let error = format!("{:#}", read.expect_err(&expected));
        assert!(error.starts_with(&expected), "{expected}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}
