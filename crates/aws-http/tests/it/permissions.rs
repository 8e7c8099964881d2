//! The policy that is shipped against the calls that are made (A-122): each call is allowed, and nothing is allowed that is never called.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;
use serde_json::Value;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn policy() -> Value {
    let text = fs::read_to_string(repository().join("deploy/aws/controller-policy.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn cloud_formation() -> String {
    fs::read_to_string(repository().join("deploy/aws/cloudformation.yaml")).unwrap()
}

/// What the rules of EventBridge pass on.
fn rules(cloud_formation: &str) -> Vec<&str> {
    let detail_type = Regex::new(r"detail-type: \[([^\]]+)\]").unwrap();
    detail_type
        .captures_iter(cloud_formation)
        .map(|found| found.extract::<1>().1[0])
        .collect()
}

fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::Array(items) => items.iter().filter_map(Value::as_str).collect(),
        other => other.as_str().into_iter().collect(),
    }
}

/// `ec2:CreateFleet` and so on, from the names of calls in the sources of each service.
fn called() -> BTreeSet<String> {
    let name = Regex::new(
        r#""((?:Add|Create|Delete|Describe|Get|List|Receive|Remove|Run|Tag|Terminate)[A-Z][A-Za-z]+)""#,
    )
    .unwrap();
    let sources = [
        ("arc-zonal-shift", "src/arc.rs"),
        ("ec2", "src/ec2/mod.rs"),
        ("eks", "src/eks.rs"),
        ("iam", "src/iam.rs"),
        ("pricing", "src/pricing.rs"),
        ("sqs", "src/sqs.rs"),
        ("ssm", "src/ssm.rs"),
    ];
    let mut called = BTreeSet::new();
    for (service, file) in sources {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
        // Elements of replies are named after their call.
        let found: Vec<String> = name
            .captures_iter(&text)
            .filter(|found| !found[1].ends_with("Result"))
            .map(|found| format!("{service}:{}", &found[1]))
            .collect();
        assert!(!found.is_empty(), "no call in {file}");
        called.extend(found);
    }
    called
}

#[test]
fn a_122_the_policy_allows_what_is_called_and_nothing_else() {
    let policy = policy();
    let statements = policy["Statement"].as_array().unwrap();
    let allowed: BTreeSet<String> = statements
        .iter()
        .flat_map(|statement| texts(&statement["Action"]))
        .map(str::to_owned)
        .collect();
    let mut called = called();
    // No calls: launching an instance with a profile asks for the one, making a profile with tags for the other.
    called.extend(["iam:PassRole", "iam:TagInstanceProfile"].map(str::to_owned));
    assert_eq!(allowed, called);
    for statement in statements {
        assert_eq!(statement["Effect"], "Allow");
        let reads = texts(&statement["Action"]).iter().all(|action| {
            let name = action.split_once(':').map_or("", |(_, name)| name);
            ["Describe", "Get", "List"]
                .iter()
                .any(|verb| name.starts_with(verb))
        });
        let everywhere = texts(&statement["Resource"]).contains(&"*");
        assert!(reads || !everywhere, "{} may change anything", statement["Sid"]);
    }
}

/// Methods of the ports through which calls are made: what stands there and is called by nobody is allowed in vain.
#[test]
fn a_122_every_call_that_the_provider_could_make_is_made_by_it() {
    let ports = "crates/aws-cloud/src/ports.rs";
    let text = fs::read_to_string(repository().join(ports)).unwrap();
    let method = Regex::new(r"(?m)^    fn ([a-z_]+)[<(]").unwrap();
    let methods: Vec<&str> = method
        .captures_iter(&text)
        .map(|found| found.extract::<1>().1[0])
        .collect();
    assert!(methods.len() > 25, "{methods:?}");
    let sources = fs::read_dir(repository().join("crates/aws-cloud/src")).unwrap();
    let files = sources.map(|entry| entry.unwrap().path());
    let others = files.filter(|file| {
        let name = file.file_name().unwrap().to_str().unwrap();
        name.ends_with(".rs") && !["ports.rs", "fake.rs"].contains(&name)
    });
    let program: String = others.map(|file| fs::read_to_string(file).unwrap()).collect();
    for method in methods {
        // With the service before it: `self.aws.ec2.images(`, also over several lines.
        let service = "(?:ec2|ssm|iam|eks|sqs|pricing|zonal_shift)";
        let call = Regex::new(&format!(r"\b{service}\s*\.{method}\(")).unwrap();
        assert!(call.is_match(&program), "{ports}: nobody calls {method}");
    }
}

#[test]
fn a_122_d_274_cloud_formation_and_terraform_have_the_same_policy_and_rules() {
    let cloud_formation = cloud_formation();
    let start = cloud_formation.find("          - |\n").unwrap() + "          - |\n".len();
    let lines = cloud_formation[start..]
        .lines()
        .take_while(|line| line.starts_with("            "));
    let inline: Value = serde_json::from_str(&lines.collect::<String>()).unwrap();
    assert_eq!(
        inline,
        policy(),
        "the policy in cloudformation.yaml is not controller-policy.json"
    );

    let terraform = fs::read_to_string(repository().join("deploy/aws/main.tf")).unwrap();
    let rules = rules(&cloud_formation);
    assert_eq!(rules.len(), 5);
    for rule in rules {
        assert!(
            terraform.contains(&format!("detail_type = \"{rule}\"")),
            "main.tf has no rule for {rule}"
        );
    }
}

/// Whoever takes a cluster over keeps Karpenter's role, policies and rules, which may be as old as 1.0's.
#[test]
fn a_122_the_page_of_the_migration_names_what_karpenters_first_policy_lacks() {
    const ACTIONS: [&str; 27] = [
        "ec2:CreateFleet",
        "ec2:CreateLaunchTemplate",
        "ec2:CreateTags",
        "ec2:DeleteLaunchTemplate",
        "ec2:DescribeImages",
        "ec2:DescribeInstanceTypeOfferings",
        "ec2:DescribeInstanceTypes",
        "ec2:DescribeInstances",
        "ec2:DescribeLaunchTemplates",
        "ec2:DescribeSecurityGroups",
        "ec2:DescribeSpotPriceHistory",
        "ec2:DescribeSubnets",
        "ec2:RunInstances",
        "ec2:TerminateInstances",
        "eks:DescribeCluster",
        "iam:AddRoleToInstanceProfile",
        "iam:CreateInstanceProfile",
        "iam:DeleteInstanceProfile",
        "iam:GetInstanceProfile",
        "iam:PassRole",
        "iam:RemoveRoleFromInstanceProfile",
        "iam:TagInstanceProfile",
        "pricing:GetProducts",
        "sqs:DeleteMessage",
        "sqs:GetQueueUrl",
        "sqs:ReceiveMessage",
        "ssm:GetParameter",
    ];
    const LAUNCHED_FROM: [&str; 4] = ["image/*", "snapshot/*", "security-group/*", "subnet/*"];
    const RULES: [&str; 4] = [
        "AWS Health Event",
        "EC2 Spot Instance Interruption Warning",
        "EC2 Instance Rebalance Recommendation",
        "EC2 Instance State-change Notification",
    ];
    let manual = fs::read_to_string(repository().join("docs/migrate.md")).unwrap();
    let (_, page) = manual.split_once("\n### On AWS\n").unwrap();
    let (page, _) = page.split_once("\n### ").unwrap();
    let policy = policy();
    let mut lacking = BTreeSet::new();
    for statement in policy["Statement"].as_array().unwrap() {
        let actions = texts(&statement["Action"]);
        lacking.extend(actions.into_iter().filter(|action| !ACTIONS.contains(action)));
        if statement["Sid"] == "LaunchFrom" {
            let resources = texts(&statement["Resource"]);
            let kinds = resources
                .into_iter()
                .filter_map(|resource| resource.rsplit(':').next());
            lacking.extend(kinds.filter(|kind| !LAUNCHED_FROM.contains(kind)));
        }
    }
    let cloud_formation = cloud_formation();
    let rules = rules(&cloud_formation);
    lacking.extend(rules.into_iter().filter(|rule| !RULES.contains(rule)));
    assert!(lacking.len() > 6, "{lacking:?}");
    for name in lacking {
        assert!(
            page.contains(&format!("`{name}`")),
            "docs/migrate.md does not name {name}"
        );
    }
}

/// IAM takes managed policies of at most 6,144 characters, not counting blanks, and names of roles of at most 64.
#[test]
fn a_122_the_policy_and_the_names_fit_into_iams_limits_for_the_longest_cluster_name_in_every_partition() {
    const PLACES: [(&str, &str); 8] = [
        ("aws", "us-east-1"),
        ("aws", "ap-southeast-2"),
        ("aws-cn", "cn-northwest-1"),
        ("aws-us-gov", "us-gov-west-1"),
        ("aws-iso", "us-iso-east-1"),
        ("aws-iso-b", "us-isob-east-1"),
        ("aws-iso-f", "us-isof-south-1"),
        ("aws-eusc", "eusc-de-east-1"),
    ];
    let read = |file: &str| fs::read_to_string(repository().join("deploy/aws").join(file)).unwrap();
    let number = |text: &str, pattern: &str| -> usize {
        let found = Regex::new(pattern)
            .unwrap()
            .captures(text)
            .map(|found| found[1].parse());
        found.unwrap_or_else(|| panic!("{pattern} is not there")).unwrap()
    };
    let longest = number(&read("cloudformation.yaml"), r"MaxLength: (\d+)");
    let after_the_first = number(&read("main.tf"), r"A-Za-z0-9_-\]\{0,(\d+)\}");
    assert_eq!(after_the_first + 1, longest, "main.tf checks the same");
    let cluster = "c".repeat(longest);
    let role = format!("KarpenterNodeRole-{cluster}");
    assert!(role.len() <= 64, "{} characters", role.len());
    assert!(format!("KarpenterControllerPolicy-{cluster}").len() <= 128);
    // Names of rules may have 64 characters, and their keys alone have up to 33.
    let terraform = read("main.tf");
    let rules = terraform
        .split("resource \"aws_cloudwatch_event_rule\"")
        .nth(1)
        .unwrap();
    let rule = rules.split("\n}\n").next().unwrap();
    let name = Regex::new(r"(?m)^ *name(?:_prefix)? *=(.*)$").unwrap();
    let given = name.captures(rule).map(|found| found[1].to_owned());
    assert_eq!(given, None, "too long for some clusters");
    for (partition, region) in PLACES {
        let mut rendered = policy().to_string();
        for (name, value) in [
            ("Partition", partition),
            ("Region", region),
            ("Account", "111122223333"),
            ("ClusterName", &cluster),
            ("NodeRole", &role),
        ] {
            rendered = rendered.replace(&format!("${{{name}}}"), value);
        }
        assert!(!rendered.contains("${"), "{rendered}");
        let size = rendered.chars().filter(|char| !char.is_whitespace()).count();
        assert!(size <= 6_144, "{size} characters in {region}");
    }
}
