//! Images and their versions (Z-012).

use spokeshave_api::aks_node_class::NodeImage;
use spokeshave_model::InstanceType;
use spokeshave_provider_azure::images::{self, Definition, ImageError, ImageVersion, minor_version};

use crate::{class, types};

fn names(spec: &str, version: &str) -> Result<Vec<String>, ImageError> {
    let definitions = images::definitions(&class(spec), version)?;
    Ok(definitions
        .iter()
        .map(|it| format!("{}/{}", &it.gallery[..8], it.name))
        .collect())
}

#[test]
fn z_012_families_by_version_and_their_order() {
    let ubuntu = |version: &str| {
        ["gen2containerd", "containerd", "gen2arm64containerd"].map(|it| format!("AKSUbunt/{version}{it}"))
    };
    let linux = |number: &str| ["gen2", "", "gen2arm64"].map(|it| format!("AKSAzure/V{number}{it}"));
    for (spec, version, expected) in [
        ("{}", "1.33.9", ubuntu("2204")),
        ("{}", "v1.34.0", ubuntu("2404")),
        ("{imageFamily: Ubuntu2204}", "1.40.0", ubuntu("2204")),
        ("{imageFamily: Ubuntu2404}", "1.30.0", ubuntu("2404")),
        ("{imageFamily: AzureLinux}", "1.31.9", linux("2")),
        ("{imageFamily: AzureLinux}", "1.32.0", linux("3")),
    ] {
        assert_eq!(names(spec, version).unwrap(), expected, "{spec} {version}");
    }
    let trusted = "{imageFamily: Ubuntu2404, security: {trustedLaunch: {vtpm: true}}}";
    assert_eq!(
        names(trusted, "1.34.0").unwrap(),
        ["AKSUbunt/2404gen2TLcontainerd"]
    );
    assert_eq!(names("{fipsMode: FIPS}", "1.34.0"), Err(ImageError::Fips));
    assert_eq!(
        names("{imageFamily: Windows}", "1.34.0"),
        Err(ImageError::Family("Windows".to_owned()))
    );
    assert_eq!(
        names("{}", "new"),
        Err(ImageError::KubernetesVersion("new".to_owned()))
    );
    assert_eq!(minor_version("v1.34+"), Some((1, 34)));
    assert_eq!(minor_version("1"), None);
}

#[test]
fn z_012_the_newest_version_by_its_date() {
    let versions: Vec<ImageVersion> = serde_json::from_str(
        r#"[
        {"name": "202608.9.0", "properties": {"publishedDate": "2026-08-20T00:00:00Z"}},
        {"name": "202609.1.0", "properties": {"publishedDate": "2026-08-01T00:00:00Z"}},
        {"name": "202610.1.0", "properties": {"publishedDate": "2026-10-01T00:00:00Z", "excludeFromLatest": true}},
        {"name": "1.0.0"}
    ]"#,
    )
    .unwrap();
    assert_eq!(images::newest(&versions).unwrap().name, "202608.9.0");
    assert_eq!(images::newest(&versions[3..]).unwrap().name, "1.0.0");
    assert_eq!(images::newest(&[]), None);
}

#[test]
fn z_012_a_machine_starts_from_the_first_image_that_suits_it() {
    let class = class("{imageFamily: Ubuntu2404}");
    let definitions = images::definitions(&class, "1.34.0").unwrap();
    let version: ImageVersion = serde_json::from_str(r#"{"name": "1.2.3"}"#).unwrap();
    let versions = [version];
    let found: Vec<_> = definitions
        .iter()
        .map(|it| (*it, it.newest_image(&versions)))
        .collect();
    let all = images::images(&found).unwrap();
    assert_eq!(
        all[0].id,
        "/CommunityGalleries/AKSUbuntu-38d80f77-467a-481f-a8d4-09b6d4220bd2/images/2404gen2containerd/versions/1.2.3"
    );
    let types = types(&class);
    let image = |name: &str| {
        let instance_type: &InstanceType = types.iter().find(|it| it.name == name).unwrap();
        let image = images::image_for(&all, instance_type)?;
        image.id.split('/').nth(4).map(str::to_owned)
    };
    assert_eq!(image("Standard_D2s_v5").as_deref(), Some("2404gen2containerd"));
    assert_eq!(
        image("Standard_D2_v2").as_deref(),
        Some("2404containerd"),
        "generation 1 only"
    );
    assert_eq!(
        image("Standard_D2ps_v5").as_deref(),
        Some("2404gen2arm64containerd")
    );
    let some = images::images(&found[1..]).unwrap();
    let d2s = types.iter().find(|it| it.name == "Standard_D2s_v5").unwrap();
    assert!(
        images::image_for(&some, d2s)
            .unwrap()
            .id
            .contains("/2404containerd/")
    );
    let none: Vec<_> = definitions.iter().map(|it| (*it, it.newest_image(&[]))).collect();
    assert_eq!(
        images::images(&none).unwrap_err().to_string(),
        "none of the image definitions 2404gen2containerd, 2404containerd, 2404gen2arm64containerd has a version in this location"
    );
}

/// By which what a class has stays while a gallery has no version of it.
#[test]
fn z_012_the_image_of_a_definition_is_known_by_its_id_in_the_galleries_and_at_aks() {
    let class = class("{imageFamily: Ubuntu2404}");
    let definitions = images::definitions(&class, "1.34.0").unwrap();
    for id in [
        Definition::image_id as fn(&Definition, &str) -> String,
        Definition::aks_name,
    ] {
        let mut images: Vec<NodeImage> = Vec::new();
        for definition in &definitions {
            assert_eq!(definition.known(&images, id), None, "that of another is not its");
            images.push(NodeImage {
                id: id(definition, "202608.1.0").to_uppercase(),
                requirements: Vec::new(),
            });
            let known = definition.known(&images, id);
            assert_eq!(known.as_ref(), images.last());
        }
    }
    let of_aks = [NodeImage {
        id: definitions[0].aks_name("202608.1.0"),
        requirements: Vec::new(),
    }];
    assert_eq!(definitions[0].known(&of_aks, Definition::image_id), None);
}
