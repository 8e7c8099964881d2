//! Custom data from templates (Z-039).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use serde_json::Value;
use spokeshave_api::labels as api;
use spokeshave_provider_azure::bootstrap::{self, Cluster, K3S, KUBEADM, Node, TALOS, TemplateError};

use crate::{class, types};

fn cluster() -> Cluster {
    Cluster {
        name: "cluster".to_owned(),
        endpoint: "https://api.example.com:6443".to_owned(),
        ca_bundle: "-----BEGIN CERTIFICATE-----\n".to_owned(),
        bootstrap_token: "abcdef.0123456789abcdef".to_owned(),
        dns_service_ip: "10.0.0.10".to_owned(),
        kubernetes_version: "1.34.1".to_owned(),
    }
}

fn render(template: &str, cluster: &Cluster) -> Result<String, TemplateError> {
    let class = class(
        "{maxPods: 50, kubelet: {cpuManagerPolicy: static, allowedUnsafeSysctls: [net.core.somaxconn], failSwapOn: false}}",
    );
    let types = types(&class);
    let labels = BTreeMap::from([("karpenter.sh/nodepool", "pool"), ("team", "a")]);
    let labels = labels
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    let special = Taint {
        key: "special".to_owned(),
        value: Some("yes".to_owned()),
        effect: "NoSchedule".to_owned(),
        time_added: None,
    };
    let taints = [special, api::unregistered_taint()];
    bootstrap::render(
        template,
        cluster,
        &Node {
            name: "aks-claim",
            provider_id: "azure:///subscriptions/s/x",
            instance_type: types.iter().find(|it| it.name == "Standard_D4s_v5").unwrap(),
            labels: &labels,
            taints: &taints,
            kubelet: class.spec.kubelet.as_ref(),
        },
    )
}

#[test]
fn z_039_the_sample_for_kubeadm() {
    assert_eq!(
        render(KUBEADM, &cluster()).unwrap(),
        include_str!("../golden/kubeadm.sh")
    );
}

#[test]
fn z_039_the_sample_for_k3s() {
    assert_eq!(render(K3S, &cluster()).unwrap(), include_str!("../golden/k3s.sh"));
}

#[test]
fn z_039_the_sample_for_talos_is_yaml() {
    let text = render(TALOS, &cluster()).unwrap();
    let value: Value = serde_saphyr::from_str(&text).unwrap();
    let machine = &value["machine"];
    assert_eq!(machine["nodeLabels"]["karpenter.sh/nodepool"], "pool");
    assert_eq!(machine["network"]["hostname"], "aks-claim");
    let config = &machine["kubelet"]["extraConfig"];
    assert_eq!(config["maxPods"], 50);
    assert_eq!(config["kubeReserved"]["cpu"], "140m");
    assert_eq!(config["evictionHard"]["memory.available"], "750Mi");
    assert_eq!(config["cpuManagerPolicy"], "static");
    assert_eq!(config["clusterDNS"][0], "10.0.0.10");
    assert_eq!(
        config["registerWithTaints"][1]["key"],
        "karpenter.sh/unregistered"
    );
    assert_eq!(
        value["cluster"]["ca"]["crt"],
        "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg=="
    );
}

#[test]
fn z_039_what_a_template_may_not_ask_for() {
    let error = render("{{ cluster_endpoint }} {{ secret }}", &cluster()).unwrap_err();
    assert!(matches!(&error, TemplateError::Unknown { placeholder, .. } if placeholder == "secret"));
    assert!(
        error
            .to_string()
            .contains("expected one of bootstrap_token, cluster_ca"),
        "{error}"
    );
    let no_token = Cluster {
        bootstrap_token: String::new(),
        ..cluster()
    };
    assert_eq!(
        render("{{bootstrap_token}}", &no_token),
        Err(TemplateError::Empty("bootstrap_token".to_owned()))
    );
    assert_eq!(
        render("{{ .Go }} ${{ x y }} {{", &cluster()).unwrap(),
        "{{ .Go }} ${{ x y }} {{"
    );
    assert_eq!(
        render(&"x".repeat(65_536), &cluster()),
        Err(TemplateError::TooLarge(65_536))
    );
    let no_dns = Cluster {
        dns_service_ip: String::new(),
        ..cluster()
    };
    assert_eq!(render("[{{ dns_service_ip }}]", &no_dns).unwrap(), "[]");
}
