//! what selector terms ask.

use serde_json::json;
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
    let terms =
        json!([{"id": "cr-1", "tags": {"a": "b"}}, {"ownerID": "1", "instanceMatchCriteria": "open"}]);
    let requests = selectors::capacity_reservations(&serde_json::from_value::<Vec<_>>(terms).unwrap());
    assert_eq!(
        json!(requests),
        json!([
            {"Filter": [{"Name": "state", "Value": ["active"]}, {"Name": "owner-id", "Value": ["1"]}, {"Name": "instance-match-criteria", "Value": ["open"]}]},
            {"CapacityReservationId": ["cr-1"], "Filter": [{"Name": "state", "Value": ["active"]}]},
        ])
    );
    let group = selectors::placement_group(&serde_json::from_value(json!({"name": "g"})).unwrap());
    assert_eq!(
        json!(group),
        json!({"GroupName": ["g"], "Filter": [{"Name": "state", "Value": ["available"]}]})
    );
}
