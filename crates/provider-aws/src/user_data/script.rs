//! AL2 and Windows: the EKS bootstrap scripts with the kubelet's flags.

use std::net::Ipv6Addr;

use serde_json::Value;

use super::mime::{self, Part, SHELL_SCRIPT};
use super::{Bootstrap, UserDataError};

pub(super) fn render_al2(bootstrap: &Bootstrap<'_>) -> Result<String, UserDataError> {
    let own = bootstrap.user_data.unwrap_or_default();
    let mut parts = if own.is_empty() {
        Vec::new()
    } else if mime::is_archive(own) {
        mime::parse(own)?
    } else {
        vec![Part::new(SHELL_SCRIPT, own)]
    };
    parts.push(Part::new(SHELL_SCRIPT, &al2_script(bootstrap)));
    Ok(mime::write(&parts))
}

fn al2_script(bootstrap: &Bootstrap<'_>) -> String {
    let cluster = bootstrap.cluster;
    let certificates = cluster.ca_bundle.as_ref();
    let certificates =
        certificates.map_or_else(String::new, |bundle| format!(" --b64-cluster-ca '{bundle}'"));
    let mut lines = vec![format!(
        "/etc/eks/bootstrap.sh '{}' --apiserver-endpoint '{}'{certificates}",
        cluster.name, cluster.endpoint
    )];
    if let Some(dns) = bootstrap.dns() {
        if dns.parse::<Ipv6Addr>().is_ok() {
            lines.push("--ip-family ipv6".to_owned());
        }
        lines.push(format!("--dns-cluster-ip '{dns}'"));
    }
    if bootstrap.kubelet.contains_key("maxPods") {
        lines.push("--use-max-pods false".to_owned());
    }
    lines.push(format!("--kubelet-extra-args '{}'", kubelet_flags(bootstrap)));
    if bootstrap.uses_raid0() {
        lines.push("--local-disks raid0".to_owned());
    }
    format!(
        "#!/bin/bash -xe\nexec > >(tee /var/log/user-data.log|logger -t user-data -s 2>/dev/console) 2>&1\n{}",
        lines.join(" \\\n")
    )
}

pub(super) fn render_windows(bootstrap: &Bootstrap<'_>) -> String {
    let cluster = bootstrap.cluster;
    let own = bootstrap.user_data.filter(|own| !own.is_empty());
    let own = own.map_or_else(String::new, |own| format!("{own}\n"));
    let certificates = cluster.ca_bundle.as_ref();
    let certificates =
        certificates.map_or_else(String::new, |bundle| format!(" -Base64ClusterCA '{bundle}'"));
    let dns = bootstrap
        .dns()
        .map_or_else(String::new, |dns| format!(" -DNSClusterIP '{dns}'"));
    format!(
        "<powershell>\n{own}[string]$EKSBootstrapScriptFile = \"$env:ProgramFiles\\Amazon\\EKS\\Start-EKSBootstrap.ps1\"\n& $EKSBootstrapScriptFile -EKSClusterName '{}' -APIServerEndpoint '{}'{certificates} -KubeletExtraArgs '{}'{dns}\n</powershell>",
        cluster.name,
        cluster.endpoint,
        kubelet_flags(bootstrap),
    )
}

/// The kubelet's flags: labels, taints, and those fields of its configuration that have a flag.
fn kubelet_flags(bootstrap: &Bootstrap<'_>) -> String {
    let mut flags = Vec::new();
    if !bootstrap.labels.is_empty() {
        let labels: Vec<String> = bootstrap
            .labels
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        flags.push(format!("--node-labels=\"{}\"", labels.join(",")));
    }
    let taints: Vec<String> = bootstrap
        .taints
        .iter()
        .map(|taint| match taint.value.as_deref().unwrap_or_default() {
            "" => format!("{}:{}", taint.key, taint.effect),
            value => format!("{}={value}:{}", taint.key, taint.effect),
        })
        .collect();
    flags.push(format!("--register-with-taints=\"{}\"", taints.join(",")));
    for (field, flag, form) in FLAGS {
        if let Some(value) = bootstrap.kubelet.get(*field) {
            flags.extend(form.write(flag, value));
        }
    }
    flags.join(" ")
}

/// How a value becomes a flag.
#[derive(Clone, Copy)]
enum Form {
    /// `--flag=value`.
    Plain,
    /// `--flag="key=value,…"`.
    Map,
    /// `--flag="key<value,…"`.
    Thresholds,
}

const FLAGS: &[(&str, &str, Form)] = &[
    ("maxPods", "--max-pods", Form::Plain),
    ("podsPerCore", "--pods-per-core", Form::Plain),
    ("systemReserved", "--system-reserved", Form::Map),
    ("kubeReserved", "--kube-reserved", Form::Map),
    ("evictionHard", "--eviction-hard", Form::Thresholds),
    ("evictionSoft", "--eviction-soft", Form::Thresholds),
    (
        "evictionSoftGracePeriod",
        "--eviction-soft-grace-period",
        Form::Map,
    ),
    (
        "evictionMaxPodGracePeriod",
        "--eviction-max-pod-grace-period",
        Form::Plain,
    ),
    (
        "imageGCHighThresholdPercent",
        "--image-gc-high-threshold",
        Form::Plain,
    ),
    (
        "imageGCLowThresholdPercent",
        "--image-gc-low-threshold",
        Form::Plain,
    ),
    ("cpuCFSQuota", "--cpu-cfs-quota", Form::Plain),
];

impl Form {
    fn write(self, flag: &str, value: &Value) -> Option<String> {
        let sign = match self {
            Form::Plain => return Some(format!("{flag}={value}")),
            Form::Map => '=',
            Form::Thresholds => '<',
        };
        let entries: Vec<String> = value
            .as_object()?
            .iter()
            .filter_map(|(key, value)| Some(format!("{key}{sign}{}", value.as_str()?)))
            .collect();
        (!entries.is_empty()).then(|| format!("{flag}=\"{}\"", entries.join(",")))
    }
}
