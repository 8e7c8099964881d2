//! Seeds on the simulated EC2, with the shipped AWS provider.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::Client;
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use spokeshave_api::crds::Cloud;
use spokeshave_api::validation::LabelRules;
use spokeshave_aws_cloud::ports::Aws;
use spokeshave_aws_cloud::{AwsOptions, AwsProvider};
use spokeshave_ec2_simulated::{Check, Options, REGION, SimulatedEc2};
use spokeshave_ports::{CloudProvider, SharedClock};
use spokeshave_provider_aws::errors::ApiError;
use spokeshave_runtime::read_only;

use super::stage::{Census, HasDied, Machine, Stage, Words};
use super::steps::{Step, failed};
use super::{CLASS, CLUSTER};
use crate::invariants::later;
use crate::lab::Lab;
use crate::soak::pick;

/// Kubernetes' minor version, as the embedded API server has it.
const MINOR: u32 = 36;
const ZONES: [&str; 4] = ["us-east-1a", "us-east-1b", "us-east-1c", "us-east-1d"];
/// The tag of an instance with its NodeClaim.
const CLAIM_TAG: &str = "karpenter.sh/nodeclaim";
/// Messages stand in a queue, which is asked for ten at a time and may answer late.
const MESSAGES_TAKE: Duration = Duration::from_secs(60);
/// Between the notice of an interruption and the end of the instance.
const SPOT_NOTICE: Duration = Duration::from_secs(120);

const TROUBLES: [Step; 12] = [
    Step::Interrupt,
    Step::TerminateByHand,
    Step::Impair,
    Step::Maintenance,
    Step::RunOut,
    Step::ZoneOutage,
    Step::FailCalls,
    Step::ReleaseImages,
    Step::RemoveTemplate,
    Step::KeepFromJoining,
    Step::StrangeMessage,
    Step::ShiftZone,
];

/// Calls that are made to fail.
const CALLS: [&str; 10] = [
    "CreateFleet",
    "CreateLaunchTemplate",
    "DescribeInstances",
    "TerminateInstances",
    "DescribeLaunchTemplates",
    "DeleteLaunchTemplate",
    "DescribeSubnets",
    "GetInstanceProfile",
    "CreateTags",
    "ReceiveMessage",
];

/// An EC2, and what it has said of its machines.
pub(super) struct Ec2(SimulatedEc2, Words);

impl Ec2 {
    pub(super) fn new(clock: SharedClock, options: Options) -> Self {
        Ec2(SimulatedEc2::new(clock, options), Words::default())
    }

    /// One that answers at once, or takes its time.
    pub(super) fn options(seed: u64, is_slow: bool) -> Options {
        let usual = Options {
            seed,
            ..Options::new(CLUSTER)
        };
        if !is_slow {
            return usual;
        }
        Options {
            latency: Duration::from_millis(1500),
            visibility_delay: Duration::from_secs(12),
            join_delay: Duration::from_secs(90),
            termination_delay: Duration::from_secs(100),
            profile_delay: Duration::from_secs(20),
            ..usual
        }
    }

    fn provider_on(&self, services: Aws, lab: &Lab, client: Client) -> Arc<dyn CloudProvider> {
        let mut options = AwsOptions::new(REGION, CLUSTER);
        options.kubernetes_minor = MINOR;
        options.interruption_queue = Some(CLUSTER.to_owned());
        options.zonal_shift = true;
        Arc::new(AwsProvider::new(
            services,
            read_only(client),
            lab.clock.clone(),
            options,
        ))
    }

    fn some_instance(&self, chance: &mut ChaCha8Rng) -> Option<String> {
        let instances = self.0.instances();
        (!instances.is_empty()).then(|| pick(chance, &instances).id.clone())
    }

    /// EC2's notice does not say when the instance ends, and it always ends as long after it.
    fn take_back(&self, lab: &Lab, id: &str) {
        if self.0.interrupt(id) {
            let ends_at = later(lab.clock.now(), SPOT_NOTICE);
            self.1.take_back(id, ends_at);
            lab.invariants.ask_cloud();
        }
    }

    fn happen(&self, lab: &Lab, step: Step, chance: &mut ChaCha8Rng) -> Result<(), String> {
        let cloud = &self.0;
        match step {
            Step::Interrupt
            | Step::TerminateByHand
            | Step::Impair
            | Step::Maintenance
            | Step::KeepFromJoining => {
                let Some(id) = self.some_instance(chance) else {
                    return Ok(());
                };
                // What follows from an interruption at once is judged (33).
                if step != Step::Interrupt {
                    lab.invariants.disturb();
                }
                match step {
                    Step::Interrupt => self.take_back(lab, &id),
                    Step::TerminateByHand => drop(cloud.terminate(&id)),
                    Step::Impair => {
                        cloud.impair(&id, *pick(chance, &[Check::Instance, Check::System]), true);
                        self.1.warn(&id);
                    }
                    Step::Maintenance => {
                        cloud.announce_maintenance(&id);
                        self.1.warn(&id);
                    }
                    _ => cloud.keep_from_joining(&id),
                }
            }
            Step::RunOut => {
                let patterns = ["*/*/spot", "m5.*", "c6i.large", "*/us-east-1a", "m7g.*//spot"];
                let pattern = pick(chance, &patterns).parse().map_err(failed)?;
                cloud.limit(pattern, chance.random_range(0..3));
            }
            Step::ZoneOutage => cloud.set_outage(pick::<&str>(chance, &ZONES), chance.random_bool(0.6)),
            Step::ShiftZone => {
                cloud.set_shifted(pick::<&str>(chance, &ZONES), chance.random_bool(0.5));
                // Nodes there stay until the shift ends.
                lab.invariants.disturb();
            }
            Step::FailCalls => {
                let errors = [
                    ApiError::new("RequestLimitExceeded", "Request limit exceeded."),
                    ApiError::new("", "no answer"),
                    ApiError {
                        server_fault: true,
                        ..ApiError::new("InternalError", "An internal error has occurred")
                    },
                ];
                let (call, error) = (*pick(chance, &CALLS), pick(chance, &errors).clone());
                cloud.fail(call, &error, chance.random_range(1..6));
                lab.invariants.disturb();
            }
            Step::ReleaseImages => cloud.release_images(),
            Step::RemoveTemplate => {
                let templates = cloud.templates();
                if !templates.is_empty() {
                    cloud.remove_template(pick::<String>(chance, &templates));
                }
            }
            Step::StrangeMessage => {
                let bodies = [
                    "",
                    "hello",
                    "{}",
                    "{\"version\":\"0\",\"source\":\"aws.ec2\"}",
                    "[1]",
                ];
                cloud.send_message((*pick(chance, &bodies)).to_owned());
            }
            _ => {}
        }
        Ok(())
    }
}

/// What it adds to the rules about labels.
pub(super) fn label_rules() -> LabelRules {
    let well_known = spokeshave_provider_aws::labels::WELL_KNOWN.iter();
    LabelRules {
        restricted_domains: vec!["karpenter.k8s.aws".to_owned()],
        well_known: well_known.map(|label| (*label).to_owned()).collect(),
        unsupported: spokeshave_provider_aws::labels::unsupported(),
    }
}

impl Stage for Ec2 {
    fn name(&self) -> &'static str {
        "EC2"
    }

    fn definitions(&self) -> Cloud {
        Cloud::Aws
    }

    fn class(&self) -> Value {
        let terms = json!([{"tags": {"karpenter.sh/discovery": CLUSTER}}]);
        json!({"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": CLASS}, "spec": {
            "role": "KarpenterNodeRole", "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": terms, "securityGroupSelectorTerms": terms,
        }})
    }

    fn class_change(&self, number: u32) -> Value {
        json!({"spec": {"userData": format!("#!/bin/sh\necho {number}\n")}})
    }

    fn requirements(&self) -> Value {
        json!([
            {"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["m5", "c6i", "r6i", "m7g"]},
            {"key": "karpenter.k8s.aws/instance-cpu", "operator": "Lt", "values": ["17"]},
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"]},
        ])
    }

    fn join(&self, client: Client) {
        let machines = self.0.clone();
        tokio::spawn(async move { machines.join(client, std::future::pending()).await });
    }

    fn provider(&self, lab: &Lab, client: Client) -> Arc<dyn CloudProvider> {
        self.provider_on(self.0.services(), lab, client)
    }

    fn mortal_provider(&self, lab: &Lab, client: Client, calls: u64) -> (Arc<dyn CloudProvider>, HasDied) {
        let (services, life) = self.0.mortal_services(calls);
        (
            self.provider_on(services, lab, client),
            Box::new(move || life.has_ended()),
        )
    }

    fn census(&self) -> Census {
        let (cloud, words) = (self.0.clone(), self.1.clone());
        Arc::new(move || {
            let instances = cloud.instances().into_iter();
            let machines = instances.map(|instance| Machine {
                claim: instance.tags.get(CLAIM_TAG).cloned(),
                is_ending: instance.state == "shutting-down",
                is_spot: instance.lifecycle == "spot",
                is_held: cloud.is_shifted(&instance.zone),
                launched_at: instance.launched_at,
                said: words.about(&instance.id),
                id: instance.id,
            });
            machines.collect()
        })
    }

    fn belongings(&self) -> Vec<(&'static str, Vec<String>)> {
        vec![
            ("launch template", self.0.templates()),
            ("instance profile", self.0.profiles()),
        ]
    }

    fn calls(&self) -> Vec<(String, u64)> {
        self.0.calls().into_iter().collect()
    }

    fn troubles(&self) -> &'static [Step] {
        &TROUBLES
    }

    fn act<'a>(
        &'a self,
        lab: &'a Lab,
        step: Step,
        chance: &'a mut ChaCha8Rng,
    ) -> BoxFuture<'a, Result<(), String>> {
        std::future::ready(self.happen(lab, step, chance)).boxed()
    }

    fn word_takes(&self) -> Duration {
        MESSAGES_TAKE
    }

    fn interrupt<'a>(&'a self, lab: &'a Lab, machine: &'a str) -> BoxFuture<'a, Result<(), String>> {
        self.take_back(lab, machine);
        std::future::ready(Ok(())).boxed()
    }

    fn interrupt_stranger(&self, machine: &str) {
        self.0.interrupt_stranger(machine);
    }

    fn messages(&self) -> usize {
        self.0.messages()
    }

    fn ec2(&self) -> Option<SimulatedEc2> {
        Some(self.0.clone())
    }

    fn heal(&self) {
        self.0.heal();
        self.0.unlimited();
        for zone in ZONES {
            self.0.set_outage(zone, false);
            self.0.set_shifted(zone, false);
        }
    }
}
