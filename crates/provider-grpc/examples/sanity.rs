//! Checks a provider from outside: `sanity SOCKET`. Ends with 1 and the names of the promises that it breaks.

use std::process::ExitCode;
use std::sync::Arc;

use spokeshave_ports::{SharedClock, TokioClock};
use spokeshave_provider_grpc::UnixConnector;
use spokeshave_provider_grpc::sanity::{SanityOptions, check};

#[tokio::main]
async fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(socket) = arguments.next() else {
        eprintln!("usage: sanity SOCKET; SOCKET is the unix socket of a provider");
        return ExitCode::from(2);
    };
    let clock: SharedClock = TokioClock::wall(1.0).shared();
    let options = SanityOptions {
        connector: Arc::new(UnixConnector(socket.clone().into())),
        node_class: None,
        changed_node_class: None,
        node_class_name: "default".to_owned(),
        cluster_uid: "sanity".to_owned(),
        run: clock.now().as_millisecond().to_string(),
        restart: None,
        is_time_virtual: false,
    };
    match check(&options, &clock).await {
        Ok(_) => {
            println!("{socket} keeps its promises");
            ExitCode::SUCCESS
        }
        Err(failures) => {
            eprintln!("{failures}");
            ExitCode::FAILURE
        }
    }
}
