//! Prints the CustomResourceDefinitions, for a server without the `spokeshave` binary at hand:
//! `cargo run -p spokeshave-api --example crds | kubectl apply --server-side -f -`

fn main() {
    print!("{}", spokeshave_api::crds::crds_yaml());
}
