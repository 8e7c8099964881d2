//! A page of five thousand nodes, fifty of which change twice a second, for `e2e/web/checks/large.py`: deciding about so many takes longer than that, so that
//! the decisions are those of the beginning. Prints its address as `spokeshave web` does, and runs until it is ended.

use spokeshave_example::{Shape, cluster, epoch};
use spokeshave_plan::Policy;
use spokeshave_view::{History, Judged, Ledger, View, World};
use spokeshave_web::{Board, Gate, Shown, serve};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

const NODES: usize = 5000;
const PODS: usize = 70_000;
/// Nodes to which a pod comes from one view to the next.
const CHANGED: usize = 50;
const PAUSE: Duration = Duration::from_millis(500);

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let world = World {
        state: cluster(Shape::Plain, NODES, PODS, 1),
        now: epoch(),
        ..World::default()
    };
    let judged = Arc::new(Judged::of(world, &Policy::default()));
    let first = View::take(&judged, &mut Ledger::default(), &mut History::default(), 1);
    let board = Board::new();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let gate = Gate {
        token: "changing".to_owned(),
        cookie: "spokeshave-changing".to_owned(),
        hosts: Vec::new(),
        source: "an example".to_owned(),
    };
    eprintln!(
        "Page of an example: http://{}/?token={}",
        listener.local_addr()?,
        gate.token
    );
    let serving = serve(listener, board.clone(), gate, std::future::pending::<()>());
    tokio::join!(change(board, first, judged), serving);
    Ok(())
}

async fn change(board: Board, mut view: View, judged: Arc<Judged>) {
    loop {
        let shown = Shown {
            view: Arc::new(view.clone()),
            judged: Arc::clone(&judged),
        };
        board.publish(shown);
        tokio::time::sleep(PAUSE).await;
        go_on(&mut view);
    }
}

/// The next view: a pod has come to each of the next nodes in turn.
fn go_on(view: &mut View) {
    let rows = &mut view.nodes.0;
    let begin = usize::try_from(view.revision).unwrap_or_default() * CHANGED;
    for index in begin..begin + CHANGED {
        let at = index % rows.len();
        let row = &mut rows[at];
        row.pods.1 += 1;
        row.cpu.1 = (row.cpu.1 + 100) % row.cpu.0.max(1);
    }
    view.revision += 1;
}
