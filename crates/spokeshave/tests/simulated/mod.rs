//! What tests of `simulate` have in common: the program, the files that it is given, and what it says of them.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// A NodePool that takes every pod.
pub(crate) const POOLS: &str = "\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
      requirements: []
  disruption: {consolidationPolicy: WhenEmptyOrUnderutilized, consolidateAfter: 1m}
";

pub(crate) fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_spokeshave"))
}

/// Writes a file below a folder, and the folders that lead to it. Where it is.
pub(crate) fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    fs::write(&path, text).expect("written");
    path.display().to_string()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("JSON")
}
