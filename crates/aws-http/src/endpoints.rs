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

/// Host and region of IAM, which every partition has once.
fn global_iam(region: &str) -> (String, &'static str) {
    let suffix = dns_suffix(region);
    if region.starts_with("cn-") {
        (format!("iam.cn-north-1.{suffix}"), "cn-north-1")
    } else if region.starts_with("us-gov-") {
        (format!("iam.us-gov.{suffix}"), "us-gov-west-1")
    } else if region.starts_with("us-isob-") {
        (format!("iam.us-isob-east-1.{suffix}"), "us-isob-east-1")
    } else if region.starts_with("us-isof-") {
        (format!("iam.us-isof-south-1.{suffix}"), "us-isof-south-1")
    } else if region.starts_with("eu-isoe-") {
        (format!("iam.eu-isoe-west-1.{suffix}"), "eu-isoe-west-1")
    } else if region.starts_with("us-iso-") {
        (format!("iam.us-iso-east-1.{suffix}"), "us-iso-east-1")
    } else if region.starts_with("eusc-") {
        (format!("iam.eusc-de-east-1.{suffix}"), "eusc-de-east-1")
    } else {
        (format!("iam.{suffix}"), "us-east-1")
    }
}

/// The endpoint of a service, seen from a region.
#[must_use]
pub fn endpoint(service: Service, region: &str, use_fips: bool) -> Endpoint {
    let regional = |region: &str| {
        let fips = if use_fips { "-fips" } else { "" };
        let name = service.signing_name();
        match service {
            Service::Pricing => format!("api.{name}{fips}.{region}.{}", dns_suffix(region)),
            _ => format!("{name}{fips}.{region}.{}", dns_suffix(region)),
        }
    };
    let (host, signing_region) = match service {
        Service::Iam => {
            let (host, signing_region) = global_iam(region);
            let host = if use_fips && signing_region == "us-east-1" {
                host.replacen("iam", "iam-fips", 1)
            } else {
                host
            };
            (host, signing_region)
        }
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

    #[test]
    fn fips_is_part_of_the_host_name() {
        assert_eq!(
            endpoint(Service::Ec2, "us-east-2", true).url,
            "https://ec2-fips.us-east-2.amazonaws.com"
        );
        assert_eq!(
            endpoint(Service::Iam, "us-east-2", true).url,
            "https://iam-fips.amazonaws.com"
        );
    }
}
