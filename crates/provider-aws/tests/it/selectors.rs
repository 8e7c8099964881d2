//! what selector terms ask.

use serde_json::json;
use spokeshave_api::ec2_node_class::{SecurityGroupSelectorTerm, SubnetSelectorTerm};
use spokeshave_provider_aws::selectors;

#[test]
fn a_003_a_020_an_id_wins_over_tags_and_terms_are_one_union() {
    let terms =
        json!([{"id": "subnet-1", "tags": {"a": "b"}}, {"id": "subnet-2"}, {"tags": {"a": "b", "c": "*"}}]);
    let requests = selectors::subnets(&serde_json::from_value::<Vec<_>>(terms).unwrap());
    assert_eq!(
        json!(requests),
        json!([
            {"Filter": [{"Name": "tag:a", "Value": ["b"]}, {"Name": "tag-key", "Value": ["c"]}]},
            {"Filter": [{"Name": "subnet-id", "Value": ["subnet-1", "subnet-2"]}]},
        ])
    );
    let terms = json!([{"name": "n", "tags": {"a": "b"}}, {"id": "sg-1", "name": "m"}]);
    let requests = selectors::security_groups(&serde_json::from_value::<Vec<_>>(terms).unwrap());
    assert_eq!(
        json!(requests),
        json!([
            {"Filter": [{"Name": "group-id", "Value": ["sg-1"]}]},
            {"Filter": [{"Name": "group-name", "Value": ["n"]}]},
        ])
    );
    let terms = json!([
        {"id": "cr-1", "tags": {"a": "b"}}, {"ownerID": "1", "instanceMatchCriteria": "open"}, {"id": "cr-2"},
    ]);
    let requests = selectors::capacity_reservations(&serde_json::from_value::<Vec<_>>(terms).unwrap());
    assert_eq!(
        json!(requests),
        json!([
            {"Filter": [{"Name": "state", "Value": ["active"]}, {"Name": "owner-id", "Value": ["1"]}, {"Name": "instance-match-criteria", "Value": ["open"]}]},
            {"CapacityReservationId": ["cr-1"], "Filter": [{"Name": "state", "Value": ["active"]}]},
            {"CapacityReservationId": ["cr-2"], "Filter": [{"Name": "state", "Value": ["active"]}]},
        ]),
        "one that EC2 does not know leaves the others as they are"
    );
}

#[test]
fn a_014_a_selector_that_matches_nothing_says_what_it_asks_for_and_what_to_do() {
    let subnets = |terms| {
        let terms: Vec<SubnetSelectorTerm> = serde_json::from_value(terms).unwrap();
        selectors::unmatched("No Subnets", "spec.subnetSelectorTerms", &terms)
    };
    assert_eq!(
        subnets(json!([{"tags": {"a": "b", "c": "*"}}, {"id": "subnet-1"}])),
        "No Subnets: nothing in this account and region has tag a=b and a tag c, nor id subnet-1; tag it so, or correct spec.subnetSelectorTerms"
    );
    let forgotten = subnets(json!([{"tags": {"karpenter.sh/discovery": "${CLUSTER_NAME}"}}]));
    assert!(
        forgotten.ends_with("; ${…} is a variable that was not replaced"),
        "{forgotten}"
    );
    let many: Vec<SecurityGroupSelectorTerm> = serde_json::from_value(
        (0..9)
            .map(|number| json!({"name": format!("group-{number}")}))
            .collect(),
    )
    .unwrap();
    let text = selectors::unmatched("No SecurityGroups", "spec.securityGroupSelectorTerms", &many);
    assert!(
        text.contains("name group-0, nor name group-1") && text.contains("nor 4 other term(s)"),
        "{text}"
    );
}
