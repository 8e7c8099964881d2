//! Bottlerocket: settings in TOML; ours win over the class's where both say something.

use serde_json::{Map, Value as Json};
use spokeshave_api::EC2NodeClass;
use toml::{Table, Value};

use super::{Bootstrap, UserDataError};

/// The bootstrap command that puts pods' storage onto the instance's disks.
const MOUNT_COMMAND: &str = "000-mount-instance-storage";

/// From this version on the command knows itself what to bind.
const BINDS_BY_ITSELF: (u64, u64) = (1, 46);

/// Version of the class's images: that of the alias, else that in the name of an image. `latest` is newer than any version.
pub(super) fn version(class: &EC2NodeClass) -> Option<(u64, u64)> {
    if let Some((_, version)) = class.alias().filter(|(family, _)| *family == "bottlerocket") {
        return match version {
            "latest" => Some((u64::MAX, 0)),
            pinned => parse_version(pinned),
        };
    }
    let amis = class.status.as_ref().map(|status| status.amis.as_slice());
    amis.unwrap_or_default().iter().find_map(|ami| {
        ami.name
            .split('-')
            .find_map(|part| part.strip_prefix('v').and_then(parse_version))
    })
}

fn parse_version(text: &str) -> Option<(u64, u64)> {
    let mut numbers = text.trim_start_matches('v').split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

pub(super) fn render(bootstrap: &Bootstrap<'_>) -> Result<String, UserDataError> {
    let own = bootstrap.user_data.unwrap_or_default();
    let mut document: Table = own
        .parse()
        .map_err(|error: toml::de::Error| UserDataError::Toml(error.message().to_owned()))?;
    let settings = table(&mut document, "settings", "settings")?;
    let kubernetes = table(settings, "kubernetes", "settings.kubernetes")?;
    set_cluster(kubernetes, bootstrap);
    set_kubelet(kubernetes, &bootstrap.kubelet);
    let labels = table(kubernetes, "node-labels", "settings.kubernetes.node-labels")?;
    for (key, value) in &bootstrap.labels {
        labels.insert(key.clone(), Value::from(value.as_str()));
    }
    kubernetes.remove("node-taints");
    let taints = table(kubernetes, "node-taints", "settings.kubernetes.node-taints")?;
    for taint in &bootstrap.taints {
        let entry = taints
            .entry(taint.key.clone())
            .or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(entries) = entry {
            let value = taint.value.as_deref().unwrap_or_default();
            entries.push(Value::from(format!("{value}:{}", taint.effect)));
        }
    }
    for empty in ["node-labels", "node-taints"] {
        if kubernetes
            .get(empty)
            .and_then(Value::as_table)
            .is_some_and(Table::is_empty)
        {
            kubernetes.remove(empty);
        }
    }
    if bootstrap.uses_raid0() {
        let commands = table(settings, "bootstrap-commands", "settings.bootstrap-commands")?;
        commands.insert(
            MOUNT_COMMAND.to_owned(),
            mount_command(bootstrap.bottlerocket_version),
        );
    }
    Ok(document.to_string())
}

/// The table under a key, which is made when it is missing.
fn table<'t>(parent: &'t mut Table, key: &str, path: &str) -> Result<&'t mut Table, UserDataError> {
    parent
        .entry(key.to_owned())
        .or_insert_with(|| Value::Table(Table::new()))
        .as_table_mut()
        .ok_or_else(|| UserDataError::Setting {
            path: path.to_owned(),
            expected: "a table",
        })
}

fn set_cluster(kubernetes: &mut Table, bootstrap: &Bootstrap<'_>) {
    let cluster = bootstrap.cluster;
    let mut set = |key: &str, value: Option<&str>| {
        if let Some(value) = value {
            kubernetes.insert(key.to_owned(), Value::from(value));
        }
    };
    set("api-server", Some(&cluster.endpoint));
    set("cluster-name", Some(&cluster.name));
    set("cluster-certificate", cluster.ca_bundle.as_deref());
    set("cluster-dns-ip", bootstrap.dns().as_deref());
}

/// Fields of the kubelet's configuration that have a setting.
fn set_kubelet(kubernetes: &mut Table, kubelet: &Map<String, Json>) {
    for (field, setting) in [
        ("maxPods", "max-pods"),
        ("evictionMaxPodGracePeriod", "eviction-max-pod-grace-period"),
    ] {
        if let Some(number) = kubelet.get(field).and_then(Json::as_i64) {
            kubernetes.insert(setting.to_owned(), Value::from(number));
        }
    }
    for (field, setting) in [
        ("imageGCHighThresholdPercent", "image-gc-high-threshold-percent"),
        ("imageGCLowThresholdPercent", "image-gc-low-threshold-percent"),
    ] {
        if let Some(number) = kubelet.get(field).and_then(Json::as_i64) {
            kubernetes.insert(setting.to_owned(), Value::from(number.to_string()));
        }
    }
    if let Some(enforced) = kubelet.get("cpuCFSQuota").and_then(Json::as_bool) {
        kubernetes.insert("cpu-cfs-quota-enforced".to_owned(), Value::from(enforced));
    }
    for (field, setting) in [
        ("evictionHard", "eviction-hard"),
        ("evictionSoft", "eviction-soft"),
        ("evictionSoftGracePeriod", "eviction-soft-grace-period"),
        ("kubeReserved", "kube-reserved"),
        ("systemReserved", "system-reserved"),
    ] {
        let Some(entries) = kubelet.get(field).and_then(Json::as_object) else {
            continue;
        };
        let texts = entries
            .iter()
            .filter_map(|(key, value)| Some((key.clone(), Value::from(value.as_str()?))));
        kubernetes.insert(setting.to_owned(), Value::Table(texts.collect()));
    }
}

fn mount_command(version: Option<(u64, u64)>) -> Value {
    let mut bind = vec!["apiclient", "ephemeral-storage", "bind"];
    if version.is_none_or(|version| version < BINDS_BY_ITSELF) {
        bind.extend([
            "--dirs",
            "/var/lib/containerd",
            "/var/lib/kubelet",
            "/var/log/pods",
        ]);
    }
    let words = |words: &[&str]| Value::Array(words.iter().map(|word| Value::from(*word)).collect());
    let mut command = Table::new();
    command.insert(
        "commands".to_owned(),
        Value::Array(vec![
            words(&["apiclient", "ephemeral-storage", "init"]),
            words(&bind),
        ]),
    );
    command.insert("mode".to_owned(), Value::from("always"));
    command.insert("essential".to_owned(), Value::from(true));
    Value::Table(command)
}
