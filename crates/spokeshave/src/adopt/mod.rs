//! `spokeshave adopt`: what would happen if this operator took over a cluster that Karpenter runs.
//!
//! It reads what `plan` reads and what surrounds it, asks `story::adopt`, and prints. It decides nothing and changes nothing: the operator itself does
//! what is left when it starts.

mod provider;
mod surroundings;

use std::fmt::Write as _;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use serde::Serialize;
use spokeshave_provider_kwok::is_adoptable;
use spokeshave_story::adopt::{Successor, Surroundings, TakeOver, check};

use crate::arguments::{CloudProviderName, OutputFormat};
use crate::doctor::{not_looked_at, table};
use crate::plan::{self, SourceArgs};
use crate::text::{count, visible};
use provider::{Ground, Provider};

/// Shown after the help.
pub(crate) const EXAMPLES: &str = "\
Examples:
  spokeshave adopt --check --live --namespace karpenter        the cluster of the current kubeconfig
  spokeshave adopt --check --live --cloud-provider aws         as the provider for AWS would find it
  spokeshave adopt --check --live --cloud-provider grpc --node-class example.com/ExampleNodeClass
                                                               as a provider in another process
  spokeshave adopt --check -f dump.yaml                        NodePools, NodeClaims and nodes of a dump
  spokeshave adopt --check --live -o json                      for programs; docs/migrate.md lists every field

It is read-only. Exit code 0 without blockers; 3 when something must be resolved first.";

/// Arguments of `adopt`.
#[derive(Debug, Args)]
#[group(id = "estate", required = true, multiple = true, args = ["filenames", "live"])]
pub(crate) struct AdoptArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Only check and report. This is all that the command does: the operator takes over when it starts
    #[arg(long, required = true)]
    pub(crate) check: bool,
    /// Check the current cluster
    #[arg(long, conflicts_with = "filenames")]
    pub(crate) live: bool,
    /// The provider that will take over; by default that of the NodeClasses that NodePools refer to
    #[arg(long, value_name = "NAME", value_enum)]
    pub(crate) cloud_provider: Option<CloudProviderName>,
    /// A kind of NodeClass of an out-of-process provider, with --cloud-provider grpc; may be repeated
    #[arg(long = "node-class", value_name = "GROUP/KIND", value_parser = provider::node_class, required_if_eq("cloud_provider", "grpc"))]
    pub(crate) node_classes: Vec<(String, String)>,
    /// The namespace in which the operator will run; it waits there for the Lease that Karpenter holds
    #[arg(long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// What to print
    #[arg(short = 'o', long, value_name = "FORMAT", value_enum, default_value = "table")]
    pub(crate) output: OutputFormat,
}

/// What the command has to say.
pub(crate) struct Answer {
    /// For standard output.
    pub(crate) text: String,
    /// Something has to be settled first.
    pub(crate) is_blocked: bool,
}

/// The answer for machines. Documented in `docs/migrate.md`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    api_version: &'static str,
    kind: &'static str,
    now: Timestamp,
    cloud_provider: &'static str,
    #[serde(flatten)]
    take_over: &'a TakeOver,
}

/// Runs the command.
///
/// # Errors
/// The files or the catalog cannot be read, the cluster does not answer, or it does not say which provider is to take over.
pub(crate) async fn run(args: &AdoptArgs) -> Result<Answer> {
    let loaded = plan::load(&args.source).await?;
    let provider = Provider::of(args, &loaded.world.state)?;
    // The only one that keeps records; the others ask their clouds.
    let has_records = provider.name == CloudProviderName::Kwok;
    let (around, recorded_instances) = match &loaded.client {
        Some(client) => surroundings::read(client, has_records).await?,
        None => (Surroundings::default(), None),
    };
    let mut successor = Successor {
        node_classes: provider.node_classes,
        provider_id_prefix: provider.name.provider_id_prefix().to_owned(),
        recorded_instances,
        namespace: args.namespace.clone(),
        ..Successor::default()
    };
    if has_records {
        successor.adoptable_instances = adoptable(&loaded.world.state.nodes);
    }
    let mut take_over = check(&loaded.world.state, &around, &successor, loaded.now);
    take_over.add(not_looked_at(&loaded.world));
    let document = Document {
        api_version: "adopt.spokeshave.dev/v1alpha1",
        kind: "TakeOver",
        now: loaded.now,
        cloud_provider: provider.name.word(),
        take_over: &take_over,
    };
    let text = match args.output {
        OutputFormat::Table => page(
            &take_over,
            provider.name,
            provider.ground,
            loaded.client.is_some(),
        ),
        OutputFormat::Json => format!("{}\n", serde_json::to_string_pretty(&document)?),
        OutputFormat::Yaml => serde_saphyr::to_string(&document)?,
    };
    Ok(Answer {
        text,
        is_blocked: take_over.is_blocked(),
    })
}

/// Nodes that the kwok provider adopts as its own instances.
fn adoptable(nodes: &[Arc<Node>]) -> Vec<String> {
    let nodes = nodes.iter().filter(|node| is_adoptable(node));
    nodes.filter_map(|node| node.metadata.name.clone()).collect()
}

fn page(take_over: &TakeOver, provider: CloudProviderName, ground: Ground, is_cluster: bool) -> String {
    let mut out = format!(
        "{}, {}: {} would become drifted, {} would be stamped\n",
        count(take_over.node_pools, "NodePool"),
        count(take_over.node_claims, "NodeClaim"),
        count(take_over.would_drift, "NodeClaim"),
        count(take_over.would_stamp, "object"),
    );
    if let Some(why) = ground.words() {
        let provider = provider.word();
        let _ = writeln!(
            out,
            "Looked at as the provider {provider} would, {why}; --cloud-provider names another."
        );
    }
    if !is_cluster {
        out.push_str("From files, only NodePools, NodeClaims and nodes are checked; --live also checks which operator runs the cluster today.\n");
    }
    out.push('\n');
    if take_over.findings.is_empty() {
        out.push_str("No blockers found.\n");
    } else {
        out.push_str(&table::render(&take_over.findings));
        if !take_over.is_blocked() {
            out.push_str("None of this is a blocker.\n");
        }
    }
    visible(&out).into_owned()
}
