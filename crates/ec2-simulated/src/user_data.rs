//! What a machine reads in its user data when it starts: labels and taints to register with, and how many pods it takes.
//!
//! Owns reading, which is not the provider's writing: a machine whose user data went wrong joins without its labels, as a real one does.

use std::collections::BTreeMap;

use serde_json::Value;

/// What a kubelet was told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) labels: BTreeMap<String, String>,
    /// Key, value, effect.
    pub(crate) taints: Vec<(String, String, String)>,
    pub(crate) max_pods: Option<i64>,
}

/// Reads user data of any of the AMI families.
pub(crate) fn read(text: &str) -> Told {
    let mut told = Told::default();
    if text.contains("node.eks.aws/") {
        for part in node_configs(text) {
            told.take_node_config(&part);
        }
    } else if let Some(kubernetes) = bottlerocket(text) {
        told.take_bottlerocket(&kubernetes);
    } else {
        told.take_flags(text);
    }
    told
}

/// The NodeConfigs of an archive, or the text itself.
fn node_configs(text: &str) -> Vec<Value> {
    let boundary = text.lines().find_map(|line| line.split_once("boundary="));
    let Some((_, boundary)) = boundary else {
        return serde_saphyr::from_str(text).into_iter().collect();
    };
    let boundary = format!("--{}", boundary.trim().trim_matches('"'));
    let parts = text.split(&boundary).skip(1);
    let bodies = parts.filter_map(|part| {
        let part = part.replace("\r\n", "\n");
        let (head, body) = part.split_once("\n\n")?;
        head.contains("node.eks.aws").then(|| body.to_owned())
    });
    bodies
        .filter_map(|body| serde_saphyr::from_str(&body).ok())
        .collect()
}

fn bottlerocket(text: &str) -> Option<toml::Table> {
    let document: toml::Table = text.parse().ok()?;
    document.get("settings")?.get("kubernetes")?.as_table().cloned()
}

impl Told {
    fn take_node_config(&mut self, config: &Value) {
        let kubelet = &config["spec"]["kubelet"];
        for flag in kubelet["flags"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            self.take_flags(flag);
        }
        let own = &kubelet["config"];
        self.max_pods = own["maxPods"].as_i64().or(self.max_pods);
        for taint in own["registerWithTaints"].as_array().into_iter().flatten() {
            let text = |field: &str| taint[field].as_str().unwrap_or_default().to_owned();
            self.taints.push((text("key"), text("value"), text("effect")));
        }
    }

    fn take_bottlerocket(&mut self, kubernetes: &toml::Table) {
        self.max_pods = kubernetes.get("max-pods").and_then(toml::Value::as_integer);
        let table = |name: &str| {
            kubernetes
                .get(name)
                .and_then(toml::Value::as_table)
                .into_iter()
                .flatten()
        };
        for (key, value) in table("node-labels") {
            self.labels
                .insert(key.clone(), value.as_str().unwrap_or_default().to_owned());
        }
        for (key, values) in table("node-taints") {
            for value in values
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(toml::Value::as_str)
            {
                let (value, effect) = value.rsplit_once(':').unwrap_or(("", value));
                self.taints
                    .push((key.clone(), value.to_owned(), effect.to_owned()));
            }
        }
    }

    /// The kubelet's flags, wherever in a script they stand.
    fn take_flags(&mut self, text: &str) {
        for label in flag(text, "--node-labels=").split(',') {
            if let Some((key, value)) = label.split_once('=') {
                self.labels.insert(key.to_owned(), value.to_owned());
            }
        }
        for taint in flag(text, "--register-with-taints=").split(',') {
            if let Some((key, effect)) = taint.rsplit_once(':') {
                let (key, value) = key.split_once('=').unwrap_or((key, ""));
                self.taints
                    .push((key.to_owned(), value.to_owned(), effect.to_owned()));
            }
        }
        self.max_pods = flag(text, "--max-pods=").parse().ok().or(self.max_pods);
    }
}

/// The value of a flag, quoted or not; empty where there is none.
fn flag<'t>(text: &'t str, name: &str) -> &'t str {
    let Some((_, rest)) = text.split_once(name) else {
        return "";
    };
    let end = match rest.strip_prefix('"') {
        Some(quoted) => return quoted.split('"').next().unwrap_or_default(),
        None => rest.find(|it: char| it.is_whitespace() || it == '\''),
    };
    &rest[..end.unwrap_or(rest.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected() -> Told {
        Told {
            labels: BTreeMap::from([
                ("a".to_owned(), "1".to_owned()),
                ("b/c".to_owned(), String::new()),
            ]),
            taints: vec![
                ("k".to_owned(), "v".to_owned(), "NoSchedule".to_owned()),
                ("u".to_owned(), String::new(), "NoExecute".to_owned()),
            ],
            max_pods: Some(8),
        }
    }

    #[test]
    fn a_069_a_node_config_in_an_archive_is_read() {
        let text = "MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=\"//\"\r\n\r\n--//\r\nContent-Type: text/x-shellscript\r\n\r\necho --node-labels=x=y\r\n--//\r\n\
            Content-Type: application/node.eks.aws\r\n\r\napiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  kubelet:\n    config:\n      maxPods: 8\n      registerWithTaints:\n\
            \x20     - {key: k, value: v, effect: NoSchedule}\n      - {key: u, effect: NoExecute}\n    flags:\n    - --node-labels=\"a=1,b/c=\"\n--//--\n";
        assert_eq!(read(text), expected());
    }

    #[test]
    fn a_070_flags_of_a_script_and_settings_of_bottlerocket_are_read() {
        let script = "#!/bin/bash\n/etc/eks/bootstrap.sh 'c' --kubelet-extra-args '--node-labels=\"a=1,b/c=\" --register-with-taints=\"k=v:NoSchedule,u:NoExecute\" --max-pods=8'";
        assert_eq!(read(script), expected());
        let settings = "[settings.kubernetes]\nmax-pods = 8\n[settings.kubernetes.node-labels]\na = \"1\"\n\"b/c\" = \"\"\n[settings.kubernetes.node-taints]\nk = [\"v:NoSchedule\"]\nu = [\":NoExecute\"]\n";
        assert_eq!(read(settings), expected());
        for nonsense in ["", "hello", "node.eks.aws/", "[settings]", "--node-labels="] {
            assert_eq!(read(nonsense), Told::default(), "{nonsense}");
        }
    }
}
