//! What a cloud with thousands of offerings tells of each: nothing, unless it is asked for (invariant 41).

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use spokeshave_api::crds::Cloud;
use spokeshave_api::{EC2NodeClass, NodePool};
use spokeshave_aws_cloud::{AwsOptions, AwsProvider};
use spokeshave_controllers::Options as OperatorOptions;
use spokeshave_ec2_simulated::{Options, REGION, SimulatedEc2};
use spokeshave_ports::{CloudProvider as _, Measurement};
use spokeshave_runtime::{Api, read_only};
use spokeshave_sim::lab::{Lab, LabOptions};

const CLUSTER: &str = "rehearsal";

/// A cluster on the simulated EC2 with a NodePool and without a node.
async fn on_ec2(object_metrics: bool) -> (Lab, Arc<AwsProvider>) {
    let mut lab = Lab::new(LabOptions {
        cloud_lives: false,
        operator: OperatorOptions {
            object_metrics,
            ..OperatorOptions::default()
        },
        ..LabOptions::new(61)
    })
    .await;
    lab.define(Cloud::Aws).await.unwrap();
    let terms = json!([{"tags": {"karpenter.sh/discovery": CLUSTER}}]);
    let class = json!({"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"}, "spec": {
        "role": "KarpenterNodeRole", "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": terms, "securityGroupSelectorTerms": terms,
    }});
    let classes: Api<EC2NodeClass> = Api::all(lab.client.clone());
    lab.create(&classes, class).await.unwrap();
    let pool = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"}, "spec": {"template": {"spec": {
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
        "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}],
    }}}});
    let pools: Api<NodePool> = Api::all(lab.client.clone());
    lab.create(&pools, pool).await.unwrap();
    let cloud = SimulatedEc2::new(lab.clock.clone(), Options::new(CLUSTER));
    let mut options = AwsOptions::new(REGION, CLUSTER);
    options.kubernetes_minor = 36;
    let client = lab.client_outside("one");
    let provider = Arc::new(AwsProvider::new(
        cloud.services(),
        read_only(client.clone()),
        lab.clock.clone(),
        options,
    ));
    lab.start_provider("one", client, provider.clone());
    (lab, provider)
}

/// Whether a family is about single instance types.
fn is_of_types(one: &Measurement) -> bool {
    one.name.starts_with("karpenter_cloudprovider_instance_type_")
}

/// The provider has thousands of series of single instance types. They are in no scrape, which stays small, before somebody asks for metrics of single
/// objects; whatever else it measures always is.
#[tokio::test(start_paused = true)]
async fn p_207_invariant_41_a_120_instance_types_have_series_where_those_of_single_objects_are_asked_for() {
    for is_asked in [false, true] {
        let (mut lab, provider) = on_ec2(is_asked).await;
        let known = || -> usize {
            let of_types = provider.measurements().into_iter().filter(is_of_types);
            of_types.map(|one| one.series.len()).sum()
        };
        for _ in 0..60 {
            lab.clock.sleep(Duration::from_secs(10)).await;
            if known() > 0 {
                break;
            }
        }
        let known = known();
        assert!(known > 1_000, "{known} series of types");
        let metrics = lab.metrics("one").expect("it runs");
        let (text, series) = (metrics.render(), metrics.series_count());
        for one in provider.measurements() {
            let is_told = text.contains(&format!("# TYPE {} ", one.name));
            let is_due = !one.series.is_empty() && (is_asked || !is_of_types(&one));
            assert_eq!(is_told, is_due, "{}", one.name);
        }
        if is_asked {
            assert!(series > known, "{series} of at least {known}");
        } else {
            assert!(series <= 500, "{series} series:\n{text}");
        }
        lab.end().await;
    }
}
