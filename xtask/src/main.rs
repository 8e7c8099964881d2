//! Checks and generators of this workspace: `cargo xtask <command>`.
//!
//! Owns what CI runs beside the compiler and what regenerates committed data. It is never a dependency of the product.

mod architecture;
mod behaviours;
mod bill;
mod circles;
mod citations;
mod features;
mod image;
mod links;
mod modules;
mod openapi_facts;
mod protobuf_facts;
mod pure;
mod scripts;
mod specification;
mod tidy;

use anyhow::{Result, bail};

const USAGE: &str = "\
usage: cargo xtask <command>

commands:
  tidy                           check dependency rules, licences, house rules, that every source file is compiled, the ids of docs/spec both ways (cited ones exist, each has a test or a reason), and the links of documents
  openapi-facts FLAGS            regenerate the API server's table of core kinds from a real server's OpenAPI
  protobuf-facts FILE…           regenerate the API server's table of protobuf fields from Kubernetes' generated.proto files
  image FLAGS                    write a container image as an OCI layout, from static binaries
  bill TARGET DIR                write what the program is linked from, as a CycloneDX document and as the texts of licences";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("tidy") => tidy::run(),
        Some("openapi-facts") => openapi_facts::run(&arguments[1..]),
        Some("protobuf-facts") => protobuf_facts::run(&arguments[1..]),
        Some("image") => image::run(&arguments[1..]),
        Some("bill") => bill::run(&arguments[1..]),
        Some("help" | "--help" | "-h") => {
            println!("{USAGE}");
            Ok(())
        }
        Some(other) => bail!("unknown command {other:?}\n\n{USAGE}"),
        None => bail!("a command is needed\n\n{USAGE}"),
    }
}
