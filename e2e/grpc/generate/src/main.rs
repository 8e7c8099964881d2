//! Writes the Rust code of the provider protocol: `generate <proto file> <output file>`.
use sha2::{Digest as _, Sha256};
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let proto = arguments.next().ok_or("usage: generate <proto file> <output file>")?;
    let output = arguments.next().ok_or("usage: generate <proto file> <output file>")?;
    let folder = Path::new(&proto).parent().ok_or("the proto file has no folder")?;
    let descriptors = protox::compile([&proto], [folder])?;
    let scratch = std::env::temp_dir().join(format!("provider-proto-{}", std::process::id()));
    std::fs::create_dir_all(&scratch)?;
    tonic_prost_build::configure()
        .out_dir(&scratch)
        .build_transport(false)
        .btree_map(".")
        .compile_fds(descriptors)?;
    let code = std::fs::read_to_string(scratch.join("spokeshave.provider.v1alpha1.rs"))?;
    std::fs::remove_dir_all(&scratch)?;
    let sum: String = Sha256::digest(std::fs::read(&proto)?).iter().map(|byte| format!("{byte:02x}")).collect();
    std::fs::write(output, format!("// Generated from proto/provider.proto by e2e/grpc/generate; do not edit.\n// SHA-256 of its source: {sum}\n{code}"))?;
    Ok(())
}
