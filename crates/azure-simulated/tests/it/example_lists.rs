//! The lists that Azure's documents give as examples are read as they are.

use spokeshave_provider_azure::skus::Sku;

use crate::openapi::examples;

#[test]
fn z_012_z_020_azures_example_lists_are_read() {
    let body = |file: &str| {
        let example = examples().into_iter().find(|it| it.file == file && !it.sent);
        example.unwrap().body["value"].take()
    };
    let sizes: Vec<Sku> = serde_json::from_value(body("ListAvailableResourceSkusForARegion.json")).unwrap();
    let a0 = &sizes[0];
    assert_eq!(
        (a0.name.as_str(), a0.cpus(), a0.memory_gib()),
        ("Standard_A0", Some(1), Some(0.75))
    );
    assert_eq!(a0.zones("WestUS").into_iter().collect::<Vec<_>>(), ["1", "2"]);
    assert!(a0.has_ultra_disks("westus", Some("2")) && !a0.has_ultra_disks("westus", Some("1")));
    let versions: Vec<spokeshave_provider_azure::images::ImageVersion> =
        serde_json::from_value(body("CommunityGalleryImageVersion_List.json")).unwrap();
    assert_eq!(versions[0].name, "myGalleryImageVersionName");
    assert_eq!(
        versions[0].properties.published_date.map(|it| it.to_string()),
        Some("2018-03-20T09:12:28Z".to_owned())
    );
}
