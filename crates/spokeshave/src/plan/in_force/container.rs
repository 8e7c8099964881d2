//! The settings of an operator as its Deployment has them: what its container is started with, and which file of it comes from which ConfigMap.
//!
//! Owns how Kubernetes makes an environment of `env`, `envFrom` and references, and which Deployment is whose. Pure: ConfigMaps are handed in. Secrets are never read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use clap::{Args as _, Command};
use serde_json::{Map, Value};
use spokeshave_convert::operator_in;

use crate::operate::OperatorArgs;
use crate::settings::{Environment, Words, deciding_variables};

/// A Deployment by its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DeploymentName {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl FromStr for DeploymentName {
    type Err = String;

    /// Reads `NAMESPACE/NAME`.
    fn from_str(text: &str) -> Result<Self, String> {
        let is_name = |part: &str| {
            let is_letter = |letter: char| {
                letter.is_ascii_lowercase() || letter.is_ascii_digit() || "-.".contains(letter)
            };
            !part.is_empty() && part.chars().all(is_letter)
        };
        match text.split_once('/') {
            Some((namespace, name)) if is_name(namespace) && is_name(name) => Ok(Self {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            }),
            _ => Err(
                "expected the namespace and the name of a Deployment, such as kube-system/spokeshave"
                    .to_owned(),
            ),
        }
    }
}

impl fmt::Display for DeploymentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The data of ConfigMaps of one namespace, by name, empty where there is none; or why it is not known.
pub(super) type ConfigMaps = BTreeMap<String, Result<BTreeMap<String, String>, String>>;

/// An operator that a Deployment runs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Operator {
    pub(super) name: DeploymentName,
    container: Map<String, Value>,
    volumes: Vec<Value>,
}

/// What a container says of settings.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// By variable, those of flags and of the environment.
    pub(super) settings: Environment,
    /// Variables of settings by which is decided and whose value is not known.
    pub(super) unknown: BTreeSet<&'static str>,
    /// There are variables that nobody knows, so that what is not among the settings may be set all the same.
    pub(super) is_partial: bool,
    /// What is not known of it, a sentence each.
    pub(super) notes: Vec<String>,
}

impl Said {
    /// Whether it is known what a setting is, if only that it is not set.
    pub(super) fn knows(&self, variable: &str) -> bool {
        self.settings.contains_key(variable) || !(self.is_partial || self.unknown.contains(variable))
    }
}

impl Operator {
    /// The one that runs in a Deployment, if it is an operator, has pods, and does not just look on.
    pub(super) fn running(deployment: &Value) -> Option<Self> {
        let operator = Self::in_container(deployment, operator_in(deployment)?)?;
        let runs = deployment["spec"]["replicas"].as_u64() != Some(0);
        (runs && !operator.is_shadow()).then_some(operator)
    }

    /// The one in a Deployment that somebody has named: its first container where it is not known what it runs.
    pub(super) fn named(deployment: &Value) -> Option<Self> {
        let first = || {
            deployment
                .pointer("/spec/template/spec/containers/0")?
                .as_object()
        };
        Self::in_container(deployment, operator_in(deployment).or_else(first)?)
    }

    fn in_container(deployment: &Value, container: &Map<String, Value>) -> Option<Self> {
        let metadata = &deployment["metadata"];
        let volumes = deployment.pointer("/spec/template/spec/volumes");
        Some(Self {
            name: DeploymentName {
                namespace: metadata["namespace"].as_str()?.to_owned(),
                name: metadata["name"].as_str()?.to_owned(),
            },
            container: container.clone(),
            volumes: volumes.and_then(Value::as_array).cloned().unwrap_or_default(),
        })
    }

    /// It only reports what it would do.
    fn is_shadow(&self) -> bool {
        self.words().any(|word| word == "--shadow")
    }

    /// The command and the arguments, as they are written.
    fn words(&self) -> impl Iterator<Item = &str> {
        let lists = ["command", "args"].map(|field| self.list(field));
        lists.into_iter().flatten().filter_map(Value::as_str)
    }

    fn list(&self, field: &str) -> &[Value] {
        let list = self.container.get(field).and_then(Value::as_array);
        list.map(Vec::as_slice).unwrap_or_default()
    }

    /// The ConfigMaps that settings come from.
    pub(super) fn config_maps(&self) -> BTreeSet<String> {
        let whole = self.list("envFrom").iter().map(|one| &one["configMapRef"]);
        let single = self.list("env").iter().filter(|one| decides(one).is_some());
        let single = single.map(|one| &one["valueFrom"]["configMapKeyRef"]);
        let names = whole
            .chain(single)
            .filter_map(|reference| reference["name"].as_str());
        names.map(str::to_owned).collect()
    }

    /// What it says of settings, where these are its ConfigMaps. A flag wins over its variable, a later variable over an earlier one.
    pub(super) fn said(&self, maps: &ConfigMaps) -> Said {
        let mut said = Said::default();
        for source in self.list("envFrom") {
            self.take_all_of(source, maps, &mut said);
        }
        for variable in self.list("env") {
            self.take(variable, maps, &mut said);
        }
        let words: Vec<String> = self.words().map(|word| expanded(word, &said.settings)).collect();
        let words = Words::read(&words, &OperatorArgs::augment_args(Command::new("operator")));
        for flag in &words.unknown {
            said.notes.push(format!(
                "this version does not know its argument {flag}, which is left out"
            ));
        }
        said.unknown
            .retain(|variable| !words.given.contains_key(*variable));
        said.settings.extend(words.given);
        for variable in deciding_variables() {
            let text = said.settings.get(variable);
            // A reference that is still there is to a variable that is not read, such as one from a Secret.
            if text.is_some_and(|text| text.contains("$(")) {
                said.notes.push(format!(
                    "{variable} is not known, and counts as absent: it refers to a variable that is not known"
                ));
                said.unknown.insert(variable);
            }
        }
        for variable in &said.unknown {
            said.settings.remove(*variable);
        }
        said
    }

    /// An entry of `envFrom`.
    fn take_all_of(&self, source: &Value, maps: &ConfigMaps, said: &mut Said) {
        let prefix = source["prefix"].as_str().unwrap_or_default();
        if let Some(name) = source["secretRef"]["name"].as_str() {
            let secret = format!("Secret {}/{name}", self.name.namespace);
            said.is_partial = true;
            said.notes
                .push(format!("what {secret} sets is not read, and counts as absent"));
        }
        let Some(name) = source["configMapRef"]["name"].as_str() else {
            return;
        };
        match maps.get(name) {
            Some(Ok(data)) => {
                let named = data
                    .iter()
                    .map(|(key, text)| (format!("{prefix}{key}"), text.clone()));
                said.settings.extend(named);
            }
            other => {
                let (map, why) = (self.config_map(name), because(other));
                said.is_partial = true;
                said.notes
                    .push(format!("what {map} sets is not known{why}, and counts as absent"));
            }
        }
    }

    /// An entry of `env`.
    fn take(&self, variable: &Value, maps: &ConfigMaps, said: &mut Said) {
        let Some(name) = variable["name"].as_str() else {
            return;
        };
        let from = &variable["valueFrom"];
        if from.is_null() {
            // References name what comes before.
            let text = expanded(variable["value"].as_str().unwrap_or_default(), &said.settings);
            if let Some(known) = decides(variable) {
                said.unknown.remove(known);
            }
            said.settings.insert(name.to_owned(), text);
            return;
        }
        if from["fieldRef"]["fieldPath"] == "metadata.namespace" {
            said.settings.insert(name.to_owned(), self.name.namespace.clone());
            return;
        }
        // Of others nobody asks.
        let Some(known) = decides(variable) else {
            return;
        };
        match self.key_of(from, maps) {
            Ok(Some(text)) => {
                said.unknown.remove(known);
                said.settings.insert(name.to_owned(), text);
            }
            Ok(None) => {}
            Err(why) => {
                said.notes
                    .push(format!("{name} is not known, and counts as absent: {why}"));
                said.unknown.insert(known);
            }
        }
    }

    /// The text of a key of a ConfigMap; none of one that may be absent and is.
    fn key_of(&self, from: &Value, maps: &ConfigMaps) -> Result<Option<String>, String> {
        if let Some(name) = from["secretKeyRef"]["name"].as_str() {
            let secret = format!("Secret {}/{name}", self.name.namespace);
            return Err(format!("it is in {secret}, and no Secret is read"));
        }
        let reference = &from["configMapKeyRef"];
        let (Some(name), Some(key)) = (reference["name"].as_str(), reference["key"].as_str()) else {
            return Err("it is made of what only its pods have".to_owned());
        };
        let (map, is_optional) = (self.config_map(name), reference["optional"] == true);
        match maps.get(name) {
            Some(Ok(data)) if data.contains_key(key) => Ok(data.get(key).cloned()),
            Some(Ok(_)) if is_optional => Ok(None),
            Some(Ok(_)) => Err(format!("{map} has no key {key}")),
            other => Err(format!("it is in {map}{}", because(other))),
        }
    }

    fn config_map(&self, name: &str) -> String {
        format!("ConfigMap {}/{name}", self.name.namespace)
    }

    /// The ConfigMap and the key in it that a file of the container is made of.
    pub(super) fn file(&self, path: &str) -> Option<(String, String)> {
        let below = |mount: &Value| {
            let at = mount["mountPath"].as_str()?.trim_end_matches('/');
            let rest = path.strip_prefix(at)?;
            let rest = match (rest, mount["subPath"].as_str()) {
                ("", Some(file)) => file.to_owned(),
                (rest, None) => rest.strip_prefix('/')?.to_owned(),
                (rest, Some(folder)) => format!("{folder}/{}", rest.strip_prefix('/')?),
            };
            Some((at.len(), mount["name"].as_str()?.to_owned(), rest))
        };
        let mounts = self.list("volumeMounts").iter().filter_map(below);
        // The innermost mount hides what others have there.
        let (_, volume, rest) = mounts.max_by_key(|(length, _, _)| *length)?;
        let volume = self.volumes.iter().find(|one| one["name"] == volume.as_str())?;
        let map = &volume["configMap"];
        let name = map["name"].as_str()?.to_owned();
        let key = match map["items"].as_array() {
            Some(items) => {
                let item = items.iter().find(|item| item["path"] == rest.as_str())?;
                item["key"].as_str()?.to_owned()
            }
            None => rest,
        };
        Some((name, key))
    }
}

/// The setting by which is decided and whose variable an entry of `env` is.
fn decides(variable: &Value) -> Option<&'static str> {
    let name = variable["name"].as_str()?;
    deciding_variables().find(|known| *known == name)
}

/// Why a ConfigMap is not known.
fn because(map: Option<&Result<BTreeMap<String, String>, String>>) -> String {
    match map {
        Some(Err(why)) => format!(" ({why})"),
        _ => String::new(),
    }
}

/// A text with its references `$(NAME)`; one to what is not there stays as it is, and `$$` is a dollar.
fn expanded(text: &str, known: &Environment) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let named = after.strip_prefix('(').and_then(|inner| inner.split_once(')'));
        let found = named.and_then(|(name, behind)| Some((known.get(name)?, behind)));
        rest = match (after.strip_prefix('$'), found) {
            (Some(behind), _) => {
                out.push('$');
                behind
            }
            (None, Some((value, behind))) => {
                out.push_str(value);
                behind
            }
            (None, None) => {
                out.push('$');
                after
            }
        };
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(container: Value) -> Value {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "spokeshave", "namespace": "kube-system"},
            "spec": {"template": {"spec": {"containers": [{"name": "sidecar", "image": "a"}, container],
                "volumes": [{"name": "files", "configMap": {"name": "spokeshave-files"}},
                    {"name": "more", "configMap": {"name": "others", "items": [{"key": "a.yaml", "path": "b.yaml"}]}},
                    {"name": "empty", "emptyDir": {}}]}}}})
    }

    /// A container of the chart, with more.
    fn operator(more: Value) -> Operator {
        let mut container = json!({"name": "controller", "args": ["operator", "--cloud-provider", "kwok"]});
        json_patch::merge(&mut container, &more);
        Operator::running(&deployment(container)).expect("an operator")
    }

    fn maps() -> ConfigMaps {
        let data = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter();
            Ok(pairs
                .map(|(key, text)| ((*key).to_owned(), (*text).to_owned()))
                .collect())
        };
        let maps = [
            (
                "settings",
                data(&[("gates", "NodeOverlay=true"), ("POLICY", "BestEffort")]),
            ),
            ("hidden", Err("forbidden".to_owned())),
        ];
        maps.map(|(name, map)| (name.to_owned(), map)).into()
    }

    #[test]
    fn a_name_has_a_namespace() {
        let name: DeploymentName = "kube-system/spokeshave".parse().expect("a name");
        assert_eq!(name.to_string(), "kube-system/spokeshave");
        for wrong in [
            "spokeshave",
            "/spokeshave",
            "kube-system/",
            "a/b/c",
            "a/B",
            "a/../b",
        ] {
            let error = wrong.parse::<DeploymentName>().expect_err(wrong);
            assert!(error.contains("kube-system/spokeshave"), "{error}");
        }
    }

    #[test]
    fn a_deployment_without_pods_and_a_shadow_run_no_operator() {
        let args = json!({"name": "c", "args": ["operator", "--cloud-provider=kwok", "--shadow"]});
        assert_eq!(Operator::running(&deployment(args.clone())), None);
        assert!(Operator::named(&deployment(args)).is_some(), "it was asked for");
        let args = json!({"name": "c", "args": ["operator", "--cloud-provider=kwok"]});
        let mut stopped = deployment(args.clone());
        assert!(Operator::running(&stopped).is_some());
        stopped["spec"]["replicas"] = json!(0);
        assert_eq!(Operator::running(&stopped), None);
        let other = deployment(json!({"name": "web", "image": "nginx"}));
        assert_eq!(Operator::running(&other), None);
        assert!(Operator::named(&other).is_some());
        assert_eq!(
            Operator::named(&json!({"metadata": {"name": "a", "namespace": "b"}})),
            None
        );
    }

    #[test]
    fn p_202_a_flag_wins_over_its_variable_and_a_variable_over_a_whole_configmap() {
        let more = json!({
            "args": ["operator", "--cloud-provider", "kwok", "--reserved-enis", "$(ENIS)", "--teleport"],
            "envFrom": [{"configMapRef": {"name": "settings"}, "prefix": "MIN_VALUES_"}],
            "env": [
                {"name": "ENIS", "value": "2"},
                {"name": "RESERVED_ENIS", "value": "1"},
                {"name": "TEXT", "value": "1$(ENIS)s$$$(NONE)"},
                {"name": "HIDDEN", "valueFrom": {"secretKeyRef": {"name": "vault", "key": "a"}}},
                {"name": "BATCH_MAX_DURATION", "value": "$(HIDDEN)"},
            ],
        });
        let said = operator(more).said(&maps());
        let of = |name: &str| said.settings.get(name).map(String::as_str);
        assert_eq!(of("RESERVED_ENIS"), Some("2"));
        assert_eq!(of("MIN_VALUES_POLICY"), Some("BestEffort"));
        assert_eq!(of("TEXT"), Some("12s$$(NONE)"));
        assert_eq!(of("BATCH_MAX_DURATION"), None);
        assert!(!said.knows("BATCH_MAX_DURATION"));
        assert_eq!(
            said.notes,
            [
                "this version does not know its argument --teleport, which is left out",
                "BATCH_MAX_DURATION is not known, and counts as absent: it refers to a variable that is not known"
            ]
        );
    }

    #[test]
    fn keys_of_configmaps_are_read_and_secrets_are_named() {
        let of_map = |name: &str, key: &str, optional: bool| json!({"configMapKeyRef": {"name": name, "key": key, "optional": optional}});
        let secret = json!({"secretKeyRef": {"name": "vault", "key": "gates"}});
        let requests = json!({"resourceFieldRef": {"resource": "requests.cpu"}});
        let said = |from: Value| {
            let env = json!([{"name": "FEATURE_GATES", "valueFrom": from}, {"name": "CPU_REQUESTS", "valueFrom": requests}]);
            let operator = operator(json!({"env": env}));
            let said = operator.said(&maps());
            let gates = said.settings.get("FEATURE_GATES").cloned();
            assert_eq!(said.unknown.contains("FEATURE_GATES"), !said.notes.is_empty());
            (gates, said.notes.concat(), operator.config_maps())
        };
        let (gates, notes, named) = said(of_map("settings", "gates", false));
        assert_eq!((gates.as_deref(), notes.as_str()), (Some("NodeOverlay=true"), ""));
        assert_eq!(named.into_iter().collect::<Vec<_>>(), ["settings"]);
        assert_eq!(said(of_map("settings", "none", true)).1, "");
        for (from, why) in [
            (
                of_map("settings", "none", false),
                "ConfigMap kube-system/settings has no key none",
            ),
            (
                of_map("hidden", "gates", true),
                "it is in ConfigMap kube-system/hidden (forbidden)",
            ),
            (secret, "it is in Secret kube-system/vault, and no Secret is read"),
        ] {
            let (gates, notes, _) = said(from);
            let note = format!("FEATURE_GATES is not known, and counts as absent: {why}");
            assert_eq!((gates, notes), (None, note));
        }
        let whole =
            json!({"envFrom": [{"secretRef": {"name": "vault"}}, {"configMapRef": {"name": "hidden"}}]});
        let said = operator(whole).said(&maps());
        assert!(said.is_partial && !said.knows("FEATURE_GATES"));
        assert_eq!(
            said.notes,
            [
                "what Secret kube-system/vault sets is not read, and counts as absent",
                "what ConfigMap kube-system/hidden sets is not known (forbidden), and counts as absent"
            ]
        );
    }

    #[test]
    fn a_file_of_a_container_is_found_in_its_configmap() {
        let mounts = json!({"volumeMounts": [
            {"name": "files", "mountPath": "/etc/spokeshave"},
            {"name": "more", "mountPath": "/etc/spokeshave/more/"},
            {"name": "files", "mountPath": "/etc/one.json", "subPath": "types.json"},
            {"name": "empty", "mountPath": "/var"},
        ]});
        let operator = operator(mounts);
        let at = |path: &str| operator.file(path);
        let of = |map: &str, key: &str| Some((map.to_owned(), key.to_owned()));
        assert_eq!(
            at("/etc/spokeshave/scheduler-config.yaml"),
            of("spokeshave-files", "scheduler-config.yaml")
        );
        assert_eq!(at("/etc/spokeshave/more/b.yaml"), of("others", "a.yaml"));
        assert_eq!(at("/etc/spokeshave/more/a.yaml"), None);
        assert_eq!(at("/etc/one.json"), of("spokeshave-files", "types.json"));
        for nowhere in ["/var/a", "/opt/a", "/etc/spokeshave-other/a"] {
            assert_eq!(at(nowhere), None, "{nowhere}");
        }
    }
}
