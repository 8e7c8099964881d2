//! Where a service of AWS is reached, and for which region and name its requests are signed (A13).
//!
//! Owns the table of services and partitions. It opens no connection.

use spokeshave_provider_aws::prices::pricing_region;

/// A service whose calls are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    /// Instances, templates, networks.
    Ec2,
    /// Instance profiles.
    Iam,
    /// Who we are.
    Sts,
    /// Parameters that name images.
    Ssm,
    /// The cluster.
    Eks,
    /// The queue of interruptions.
    Sqs,
    /// On-demand prices.
    Pricing,
    /// Zonal shifts.
    ArcZonalShift,
}

impl Service {
    /// Name under which requests are signed, and first label of the host name.
    #[must_use]
    pub fn signing_name(self) -> &'static str {
        match self {
            Service::Ec2 => "ec2",
            Service::Iam => "iam",
            Service::Sts => "sts",
            Service::Ssm => "ssm",
            Service::Eks => "eks",
            Service::Sqs => "sqs",
            Service::Pricing => "pricing",
            Service::ArcZonalShift => "arc-zonal-shift",
        }
    }

    /// Name of the service in the settings of Amazon's SDKs: `AWS_ENDPOINT_URL_<name>`.
    #[must_use]
    pub fn setting(self) -> &'static str {
        match self {
            Service::Ec2 => "EC2",
            Service::Iam => "IAM",
            Service::Sts => "STS",
            Service::Ssm => "SSM",
            Service::Eks => "EKS",
            Service::Sqs => "SQS",
            Service::Pricing => "PRICING",
            Service::ArcZonalShift => "ARC_ZONAL_SHIFT",
        }
    }
}

/// Where requests of one service go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Scheme and host, and a path where a proxy has one, without a slash at the end.
    pub url: String,
    /// Region for which requests are signed.
    pub signing_region: String,
}

/// DNS suffix of the partition that a region belongs to.
fn dns_suffix(region: &str) -> &'static str {
    const SUFFIXES: [(&str, &str); 6] = [
        ("cn-", "amazonaws.com.cn"),
        ("us-isob-", "sc2s.sgov.gov"),
        ("us-isof-", "csp.hci.ic.gov"),
        ("eu-isoe-", "cloud.adc-e.uk"),
        ("us-iso-", "c2s.ic.gov"),
        ("eusc-", "amazonaws.eu"),
    ];
    let found = SUFFIXES.iter().find(|(prefix, _)| region.starts_with(prefix));
    found.map_or("amazonaws.com", |(_, suffix)| suffix)
}

/// Region in which IAM lives, which every partition has once.
fn home_of_iam(region: &str) -> &'static str {
    const HOMES: [(&str, &str); 7] = [
        ("cn-", "cn-north-1"),
        ("us-gov-", "us-gov-west-1"),
        ("us-isob-", "us-isob-east-1"),
        ("us-isof-", "us-isof-south-1"),
        ("eu-isoe-", "eu-isoe-west-1"),
        ("us-iso-", "us-iso-east-1"),
        ("eusc-", "eusc-de-east-1"),
    ];
    let found = HOMES.iter().find(|(prefix, _)| region.starts_with(prefix));
    found.map_or("us-east-1", |(_, home)| home)
}

/// Host of IAM, and the region for which its requests are signed, as in AWS's rule set of its endpoints.
fn global_iam(region: &str, use_fips: bool) -> (String, &'static str) {
    let (home, suffix) = (home_of_iam(region), dns_suffix(region));
    let host = match (home, use_fips) {
        ("us-east-1", false) => format!("iam.{suffix}"),
        ("us-gov-west-1", _) => format!("iam.us-gov.{suffix}"),
        ("us-iso-east-1" | "us-isob-east-1", true) => format!("iam-fips.{home}.{suffix}"),
        (_, true) => format!("iam-fips.{suffix}"),
        (_, false) => format!("iam.{home}.{suffix}"),
    };
    let signing_region = match (home, use_fips) {
        ("cn-north-1", true) => "cn-northwest-1",
        _ => home,
    };
    (host, signing_region)
}

/// What stands before the region in the host name of a service, as in AWS's rule sets of their endpoints.
fn name_in_host(service: Service, region: &str, use_fips: bool) -> String {
    let name = match service {
        Service::Pricing => "api.pricing",
        _ => service.signing_name(),
    };
    // In GovCloud the usual hosts of these services are FIPS already, and there are no others.
    let is_fips_already = region.starts_with("us-gov-")
        && matches!(
            service,
            Service::Ec2 | Service::Eks | Service::Sqs | Service::Ssm | Service::Sts
        );
    if !use_fips || is_fips_already {
        name.to_owned()
    } else if service == Service::Eks && dns_suffix(region) == "amazonaws.com" {
        "fips.eks".to_owned()
    } else {
        format!("{name}-fips")
    }
}

/// The endpoint of a service, seen from a region.
#[must_use]
pub fn endpoint(service: Service, region: &str, use_fips: bool) -> Endpoint {
    let regional = |region: &str| {
        let name = name_in_host(service, region, use_fips);
        format!("{name}.{region}.{}", dns_suffix(region))
    };
    let (host, signing_region) = match service {
        Service::Iam => global_iam(region, use_fips),
        Service::Pricing => {
            // It exists in a few regions only.
            let near = pricing_region(region);
            (regional(near), near)
        }
        _ => (regional(region), region),
    };
    Endpoint {
        url: format!("https://{host}"),
        signing_region: signing_region.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(service: Service, region: &str) -> (String, String) {
        let endpoint = endpoint(service, region, false);
        (endpoint.url, endpoint.signing_region)
    }

    #[test]
    fn regional_services_are_reached_in_their_region() {
        assert_eq!(
            of(Service::Ec2, "eu-west-3"),
            (
                "https://ec2.eu-west-3.amazonaws.com".to_owned(),
                "eu-west-3".to_owned()
            )
        );
        assert_eq!(
            of(Service::Sqs, "cn-north-1").0,
            "https://sqs.cn-north-1.amazonaws.com.cn"
        );
        assert_eq!(
            of(Service::Eks, "us-iso-east-1").0,
            "https://eks.us-iso-east-1.c2s.ic.gov"
        );
        assert_eq!(
            of(Service::Ssm, "us-isob-east-1").0,
            "https://ssm.us-isob-east-1.sc2s.sgov.gov"
        );
    }

    #[test]
    fn iam_and_pricing_are_signed_for_the_region_that_they_live_in() {
        assert_eq!(
            of(Service::Iam, "eu-west-3"),
            ("https://iam.amazonaws.com".to_owned(), "us-east-1".to_owned())
        );
        assert_eq!(of(Service::Iam, "us-gov-east-1").1, "us-gov-west-1");
        assert_eq!(
            of(Service::Pricing, "ap-northeast-1"),
            (
                "https://api.pricing.ap-south-1.amazonaws.com".to_owned(),
                "ap-south-1".to_owned()
            )
        );
        assert_eq!(of(Service::Pricing, "sa-east-1").1, "us-east-1");
        assert_eq!(
            of(Service::Pricing, "cn-north-1").0,
            "https://api.pricing.cn-northwest-1.amazonaws.com.cn"
        );
    }

    /// What botocore 1.43.11 makes of AWS's rule sets, service by service.
    #[test]
    fn fips_hosts_are_those_of_the_rule_sets_of_aws() {
        let cases = [
            (Service::Ec2, "us-east-2", "ec2-fips.us-east-2.amazonaws.com"),
            (Service::Ec2, "us-gov-west-1", "ec2.us-gov-west-1.amazonaws.com"),
            (Service::Ec2, "us-gov-east-1", "ec2.us-gov-east-1.amazonaws.com"),
            (Service::Ec2, "us-iso-east-1", "ec2-fips.us-iso-east-1.c2s.ic.gov"),
            (Service::Eks, "us-east-1", "fips.eks.us-east-1.amazonaws.com"),
            (Service::Eks, "ca-west-1", "fips.eks.ca-west-1.amazonaws.com"),
            (Service::Eks, "us-gov-west-1", "eks.us-gov-west-1.amazonaws.com"),
            (Service::Eks, "us-gov-east-1", "eks.us-gov-east-1.amazonaws.com"),
            (Service::Eks, "cn-north-1", "eks-fips.cn-north-1.amazonaws.com.cn"),
            (
                Service::Eks,
                "eusc-de-east-1",
                "eks-fips.eusc-de-east-1.amazonaws.eu",
            ),
            (Service::Sqs, "us-west-2", "sqs-fips.us-west-2.amazonaws.com"),
            (Service::Sqs, "us-gov-west-1", "sqs.us-gov-west-1.amazonaws.com"),
            (
                Service::Ssm,
                "ca-central-1",
                "ssm-fips.ca-central-1.amazonaws.com",
            ),
            (Service::Ssm, "us-gov-east-1", "ssm.us-gov-east-1.amazonaws.com"),
            (Service::Sts, "us-east-1", "sts-fips.us-east-1.amazonaws.com"),
            (Service::Sts, "us-gov-west-1", "sts.us-gov-west-1.amazonaws.com"),
            (Service::Iam, "us-east-2", "iam-fips.amazonaws.com"),
            (Service::Iam, "us-gov-east-1", "iam.us-gov.amazonaws.com"),
            (Service::Iam, "cn-north-1", "iam-fips.amazonaws.com.cn"),
            (Service::Iam, "us-iso-east-1", "iam-fips.us-iso-east-1.c2s.ic.gov"),
            (
                Service::Iam,
                "us-isob-east-1",
                "iam-fips.us-isob-east-1.sc2s.sgov.gov",
            ),
            (Service::Iam, "us-isof-south-1", "iam-fips.csp.hci.ic.gov"),
            (Service::Iam, "eu-isoe-west-1", "iam-fips.cloud.adc-e.uk"),
            (Service::Iam, "eusc-de-east-1", "iam-fips.amazonaws.eu"),
            (
                Service::Pricing,
                "us-east-2",
                "api.pricing-fips.us-east-1.amazonaws.com",
            ),
            (
                Service::ArcZonalShift,
                "us-east-1",
                "arc-zonal-shift-fips.us-east-1.amazonaws.com",
            ),
            (
                Service::ArcZonalShift,
                "us-gov-west-1",
                "arc-zonal-shift-fips.us-gov-west-1.amazonaws.com",
            ),
        ];
        for (service, region, host) in cases {
            let endpoint = endpoint(service, region, true);
            assert_eq!(endpoint.url, format!("https://{host}"), "{service:?} in {region}");
        }
        let signed = |region| endpoint(Service::Iam, region, true).signing_region;
        assert_eq!(signed("us-east-2"), "us-east-1");
        assert_eq!(signed("us-gov-east-1"), "us-gov-west-1");
        assert_eq!(signed("cn-north-1"), "cn-northwest-1");
    }

    #[test]
    fn iam_has_one_host_in_each_partition() {
        for (region, host) in [
            ("us-gov-east-1", "iam.us-gov.amazonaws.com"),
            ("cn-northwest-1", "iam.cn-north-1.amazonaws.com.cn"),
            ("us-iso-west-1", "iam.us-iso-east-1.c2s.ic.gov"),
            ("us-isob-east-1", "iam.us-isob-east-1.sc2s.sgov.gov"),
            ("us-isof-south-1", "iam.us-isof-south-1.csp.hci.ic.gov"),
            ("eu-isoe-west-1", "iam.eu-isoe-west-1.cloud.adc-e.uk"),
            ("eusc-de-east-1", "iam.eusc-de-east-1.amazonaws.eu"),
        ] {
            assert_eq!(of(Service::Iam, region).0, format!("https://{host}"));
        }
    }
}
