//! user data of every family.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use serde_json::{Value, json};
use spokeshave_api::EC2NodeClass;
use spokeshave_api::ec2_node_class::{Ami, EC2NodeClassStatus};
use spokeshave_provider_aws::user_data::{Bootstrap, Cluster, LIMIT_BYTES, UserDataError, render};

use crate::oracle;

struct Case {
    value: Value,
    class: EC2NodeClass,
    cluster: Cluster,
    labels: BTreeMap<String, String>,
    taints: Vec<Taint>,
}

impl Case {
    fn new(value: &Value) -> Self {
        let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let mut spec = json!({"amiFamily": value["family"]});
        for field in ["kubelet", "userData", "instanceStorePolicy", "amiSelectorTerms"] {
            if let Some(given) = value.get(field) {
                spec[field] = given.clone();
            }
        }
        let mut class = EC2NodeClass::new("class", serde_json::from_value(spec).unwrap());
        class.status = Some(EC2NodeClassStatus {
            amis: vec![Ami {
                id: "ami-1".into(),
                name: text("/amiName").unwrap_or_default(),
                ..Ami::default()
            }],
            ..EC2NodeClassStatus::default()
        });
        let mut labels: BTreeMap<String, String> = value
            .get("labels")
            .map(|labels| serde_json::from_value(labels.clone()).unwrap())
            .unwrap_or_default();
        let capacity_type = text("/capacityType").unwrap_or_else(|| "on-demand".to_owned());
        if value["bare"] != true {
            labels.insert("karpenter.sh/capacity-type".to_owned(), capacity_type);
        }
        let taints = ["taints", "startupTaints"].into_iter().flat_map(|field| {
            let taints = value.get(field).cloned().unwrap_or_else(|| json!([]));
            serde_json::from_value::<Vec<Taint>>(taints).unwrap()
        });
        Case {
            class,
            cluster: Cluster {
                name: text("/cluster/name").unwrap(),
                endpoint: text("/cluster/endpoint").unwrap(),
                ca_bundle: text("/cluster/caBundle"),
                cidr: text("/cluster/cidr"),
                dns: text("/cluster/dns").map(|dns| dns.parse().unwrap()),
            },
            labels,
            taints: taints.collect(),
            value: value.clone(),
        }
    }

    fn render(&self) -> Result<String, UserDataError> {
        let pods = self.value["pods"].as_i64().unwrap_or(29);
        let mut bootstrap = Bootstrap::of(&self.class, &self.cluster, &self.labels, &self.taints, pods);
        if self.value["bare"] == true {
            bootstrap.labels = self.labels.clone();
            bootstrap.taints = self.taints.clone();
            let given = self.class.spec.kubelet.as_ref().and_then(Value::as_object);
            bootstrap.kubelet = given.cloned().unwrap_or_default();
        }
        render(&bootstrap)
    }
}

/// Parsed where the format has several spellings, so that only the meaning counts.
pub fn normalised(family: &str, text: &str) -> Value {
    match family {
        "Bottlerocket" => {
            json!(toml::from_str::<toml::Table>(text).unwrap_or_else(|error| panic!("{error}: {text}")))
        }
        "AL2023" => {
            let parts = text.replace('\r', "");
            let parts = parts.split("--//").map(|part| {
                match part.split_once("Content-Type: application/node.eks.aws\n") {
                    Some((_, config)) => serde_saphyr::from_str(config).unwrap_or_else(|_| json!(config)),
                    None => json!(part),
                }
            });
            Value::Array(parts.collect())
        }
        _ => json!(text.replace('\r', "").replace("'  \\", "' \\")),
    }
}

#[test]
fn a_069_a_070_user_data_means_what_upstreams_means() {
    let cases: Vec<Value> = serde_saphyr::from_str(&oracle::text("userdata.yaml")).unwrap();
    let expected = oracle::json("expected/userdata.json");
    let expected = expected.as_array().unwrap();
    assert_eq!(cases.len(), expected.len());
    let listed = oracle::differences("userdata");
    let mut different = Vec::new();
    for (case, expected) in cases.iter().zip(expected) {
        let name = expected["name"].as_str().unwrap();
        let family = case["family"].as_str().unwrap();
        let ours = Case::new(case).render();
        let theirs = expected.get("user_data").and_then(Value::as_str);
        let same = match (&ours, expected.get("error")) {
            (Ok(ours), None) => normalised(family, ours) == normalised(family, theirs.unwrap_or_default()),
            (Err(_), Some(_)) => true,
            _ => false,
        };
        if !same {
            different.push(name.to_owned());
            if !listed.contains_key(name) {
                println!(
                    "== {name}\n{ours:?}\n-- upstream\n{theirs:?} {:?}",
                    expected.get("error")
                );
            }
        }
    }
    different.sort();
    let listed: Vec<String> = listed.into_keys().collect();
    assert_eq!(different, listed);
}

/// As Python's `MIMEText` and `cloud-init devel make-mime` write them.
#[test]
fn a_069_a_070_archives_of_mail_libraries_come_out_as_scripts() {
    let archive = "Content-Type: multipart/mixed;\n boundary=\"===1==\"\nMIME-Version: 1.0\n\n--===1==\n\
        Content-Type: text/x-shellscript; charset=\"utf-8\"\nMIME-Version: 1.0\nContent-Transfer-Encoding: base64\n\nIyEvYmluL3NoCmVjaG8gw6kK\n--===1==--\n";
    for family in ["AL2023", "AL2"] {
        let value = json!({"family": family, "userData": archive, "cluster": {"name": "c", "endpoint": "e", "cidr": "10.0.0.0/16"}});
        let text = Case::new(&value).render().unwrap();
        assert!(text.contains("\n\n#!/bin/sh\necho é\n"), "{text}");
        assert!(!text.contains("base64"), "{text}");
    }
}

#[test]
fn a_072_user_data_over_ec2s_limit_is_refused_with_its_size() {
    for (family, filler) in [
        ("AL2023", "#"),
        ("Bottlerocket", "#"),
        ("Custom", "x"),
        ("Windows2022", "x"),
    ] {
        let case = |length: usize| {
            let text = format!("{}\n", filler.repeat(length));
            let value = json!({"family": family, "userData": text, "cluster": {"name": "c", "endpoint": "e", "cidr": "10.0.0.0/16"}});
            Case::new(&value).render()
        };
        assert!(case(10).is_ok(), "{family}");
        // Bottlerocket's comments do not survive the merge, so that only what counts is measured.
        let large = case(LIMIT_BYTES);
        match family {
            "Bottlerocket" => assert!(large.is_ok()),
            _ => assert!(
                matches!(large, Err(UserDataError::TooLarge { bytes }) if bytes > LIMIT_BYTES),
                "{family}"
            ),
        }
    }
}

/// EC2 counts the bytes before they are encoded: as many as the limit are taken, and no more.
#[test]
fn a_072_the_limit_is_16384_bytes_to_the_byte() {
    let of_bytes = |bytes: usize| {
        let text = "é".repeat(bytes / 2) + &"x".repeat(bytes % 2);
        Case::new(&json!({"family": "Custom", "userData": text, "cluster": {"name": "c", "endpoint": "e"}}))
            .render()
    };
    assert_eq!(of_bytes(16_384).unwrap().len(), 16_384);
    assert!(matches!(
        of_bytes(16_385),
        Err(UserDataError::TooLarge { bytes: 16_385 })
    ));
}

#[test]
fn a_070_wrong_settings_are_named() {
    let render = |user_data: &str| {
        let value = json!({"family": "Bottlerocket", "userData": user_data, "cluster": {"name": "c", "endpoint": "e"}});
        Case::new(&value).render().unwrap_err().to_string()
    };
    assert_eq!(render("settings = 3"), "spec.userData: settings must be a table");
    assert_eq!(
        render("[settings]\nkubernetes = []"),
        "spec.userData: settings.kubernetes must be a table"
    );
    assert!(
        render("#!/bin/bash\necho").starts_with("spec.userData is not TOML, which Bottlerocket nodes need:")
    );
}

#[test]
fn a_069_a_070_without_the_address_of_the_api_server_there_is_no_user_data_but_the_classs_own() {
    for family in ["AL2023", "AL2", "Bottlerocket", "Windows2022"] {
        let value =
            json!({"family": family, "cluster": {"name": "c", "endpoint": "", "cidr": "10.0.0.0/16"}});
        let refused = Err(UserDataError::ClusterEndpointUnknown);
        assert_eq!(Case::new(&value).render(), refused, "{family}");
    }
    let own = json!({"family": "Custom", "userData": "own", "cluster": {"name": "c", "endpoint": ""}});
    assert_eq!(Case::new(&own).render(), Ok("own".to_owned()));
}
