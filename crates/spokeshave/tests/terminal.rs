//! `spokeshave top` on a terminal of its own: what is on the screen stays there, keys are heard, and the terminal is given back as it was.
#![cfg(target_os = "linux")]

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{InputModes, LocalModes, OutputModes, Winsize, tcgetattr, tcsetwinsize};
use serde_json::{Value, json};

const ENTER_ALTERNATE_SCREEN: &str = "\u{1b}[?1049h";
const LEAVE_ALTERNATE_SCREEN: &str = "\u{1b}[?1049l";
const SHOW_CURSOR: &str = "\u{1b}[?25h";
/// Written when the program has ended.
const END: &str = "-- the end --";
/// Whoever waits for what is never shown by a program that goes on does not wait for ever.
const LIMIT: Timespec = Timespec {
    tv_sec: 300,
    tv_nsec: 0,
};

/// A terminal, and the program on it.
struct Terminal {
    ours: File,
    /// The side of the program, which stays open so that its modes can be read when that has ended.
    theirs: File,
    before: Modes,
    child: Child,
}

/// What a program may change of a terminal, and has to change back.
type Modes = (InputModes, OutputModes, LocalModes);

fn modes(theirs: &File) -> Modes {
    let all = tcgetattr(theirs).expect("modes");
    (all.input_modes, all.output_modes, all.local_modes)
}

impl Terminal {
    /// A terminal of a kind, as `TERM` has it, without colours.
    fn named(kind: &str, arguments: &[&str]) -> Self {
        Self::with(kind, Some("1"), arguments)
    }

    /// The same with what `NO_COLOR` says.
    fn with(kind: &str, no_color: Option<&str>, arguments: &[&str]) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&ours).expect("granted");
        unlockpt(&ours).expect("unlocked");
        let size = Winsize {
            ws_row: 30,
            ws_col: 120,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&ours, size).expect("sized");
        let name = ptsname(&ours, Vec::new()).expect("a name");
        let theirs = OpenOptions::new()
            .read(true)
            .write(true)
            .open(name.to_str().expect("ASCII"))
            .expect("their side");
        let before = modes(&theirs);
        assert!(before.2.contains(LocalModes::ICANON | LocalModes::ECHO));
        let side = || Stdio::from(theirs.try_clone().expect("a copy"));
        let mut program = Command::new(env!("CARGO_BIN_EXE_spokeshave"));
        match no_color {
            Some(value) => program.env("NO_COLOR", value),
            None => program.env_remove("NO_COLOR"),
        };
        let child = program
            .args(arguments)
            .env("TERM", kind)
            .env("LC_ALL", "C.UTF-8")
            .stdin(side())
            .stdout(side())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program runs");
        // Whoever waits for what is never shown reads this when the program has ended.
        let end = theirs.try_clone().expect("a copy");
        let ended = Pid::from_child(&child);
        std::thread::spawn(move || {
            let _ = waitid(WaitId::Pid(ended), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
            // Nobody reads it any more when the test is over.
            let _ = (&end).write_all(END.as_bytes());
        });
        Self {
            ours: File::from(ours),
            theirs,
            before,
            child,
        }
    }

    /// Reads until the screen has shown a text, and returns what it has shown; panics if the program ends before, or shows nothing more.
    fn until(&mut self, text: &str) -> String {
        let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
        loop {
            let shown = String::from_utf8_lossy(&seen).into_owned();
            if shown.contains(text) {
                return shown;
            }
            assert!(
                !shown.contains(END),
                "it ended before {text:?} was shown: {shown}"
            );
            let ready = poll(&mut [PollFd::new(&self.ours, PollFlags::IN)], Some(&LIMIT));
            assert_eq!(ready, Ok(1), "{text:?} is never shown: {shown}");
            let read = self.ours.read(&mut buffer).expect("their side is open");
            seen.extend_from_slice(&buffer[..read]);
        }
    }

    fn press(&mut self, keys: &str) {
        self.ours.write_all(keys.as_bytes()).expect("keys");
    }

    /// Waits for the end, which has to leave the terminal as it was.
    fn ends_and_gives_it_back(mut self) {
        let seen = self.until(END);
        let ended = self.child.wait().expect("it ends");
        assert!(ended.success(), "{ended}: {seen:?}");
        assert_eq!(modes(&self.theirs), self.before, "{seen:?}");
        assert!(
            seen.contains(LEAVE_ALTERNATE_SCREEN) && seen.contains(SHOW_CURSOR),
            "{seen:?}"
        );
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// `top` of a dump of seven nodes.
const TOP: [&str; 5] = [
    "top",
    "-f",
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/explain/stuck.yaml"),
    "--now",
    "2026-03-02T12:00:00Z",
];

/// It on a terminal of a kind.
fn top(kind: &str) -> Terminal {
    Terminal::named(kind, &TOP)
}

/// A dump is read once and judged once; what it shows stays until somebody quits.
#[test]
fn a_dump_stays_on_the_screen_and_answers_to_keys() {
    let dump = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/doctor/cluster.yaml");
    let mut terminal = Terminal::named("xterm", &["top", "-f", &dump.display().to_string()]);
    terminal.until("cpu");
    terminal.press("?");
    terminal.until("Ctrl-C");
    terminal.press("q");
    terminal.ends_and_gives_it_back();
}

/// Moves, filters, explains, looks at budgets, commands, sums and at what would be otherwise, and quits; each answer is waited for.
#[test]
fn keys_move_filter_explain_and_quit() {
    let mut terminal = top("xterm");
    let first = terminal.until("by name");
    assert!(first.contains(ENTER_ALTERNATE_SCREEN), "{first:?}");
    assert!(first.contains('░'), "{first:?}");
    let chosen = "\u{1b}[7mguarded";
    for (keys, shown) in [
        ("jjjjj", chosen),
        ("/", "filter: "),
        ("web", "web\u{1b}"),
        ("\r", "filter \"web\""),
        ("\u{1b}", chosen),
        ("e", "Node guarded: terminating"),
        ("b", "full Underutilized: no limit"),
        ("\u{1b}", "\u{1b}[2K"),
        ("w", "no change of an object removes Node guarded"),
        ("k", "\u{1b}[7mcalm"),
        ("?", "Ctrl-C"),
        ("c", "no command is known"),
        ("g", "full: 1 node, $0.109/h, cpu 12 %, mem 3 %"),
    ] {
        terminal.press(keys);
        terminal.until(shown);
    }
    terminal.press("q");
    terminal.ends_and_gives_it_back();
}

#[test]
fn a_signal_to_end_gives_the_terminal_back() {
    let mut terminal = top("xterm");
    terminal.until("by name");
    assert_ne!(modes(&terminal.theirs), terminal.before, "it is taken over");
    kill_process(Pid::from_child(&terminal.child), Signal::TERM).expect("it runs");
    terminal.ends_and_gives_it_back();
}

/// What knows no letters beyond ASCII gets none, and the same content.
#[test]
fn a_dumb_terminal_gets_ascii() {
    let mut terminal = top("dumb");
    let seen = terminal.until("by name | ");
    assert!(seen.is_ascii(), "{seen:?}");
    assert!(seen.contains("protected") && seen.contains("##."), "{seen:?}");
    terminal.press("/web");
    terminal.until("web\u{1b}");
    terminal.press("\r");
    let filtered = terminal.until("by name | ");
    assert!(filtered.contains("filter \"web\" | "), "{filtered:?}");
    assert!(filtered.is_ascii(), "{filtered:?}");
    terminal.press("q");
    terminal.ends_and_gives_it_back();
}

/// The way through it as it is typed, without waiting for answers: what comes first is done first.
#[test]
fn keys_that_are_typed_ahead_are_taken_in_their_order() {
    let mut terminal = top("xterm");
    terminal.until("by name");
    terminal.press("jj/web\u{7f}\u{7f}\u{7f}batch\rwbe");
    let seen = terminal.until("Node batch: ");
    assert!(seen.contains("\u{1b}[7mbatch"), "{seen:?}");
    // Without a pane the filter goes, and the other nodes are there again.
    terminal.press("e\u{1b}");
    terminal.until("protected");
    terminal.press("q");
    terminal.ends_and_gives_it_back();
}

/// An empty `NO_COLOR` says nothing.
#[test]
fn colours_are_left_out_where_nobody_wants_them_or_none_are_known() {
    for (kind, no_color, flag, has_colours) in [
        ("xterm", None, None, true),
        ("xterm", Some(""), None, true),
        ("xterm", Some("1"), None, false),
        ("xterm", None, Some("--no-color"), false),
        ("dumb", None, None, false),
    ] {
        let arguments: Vec<&str> = TOP.into_iter().chain(flag).collect();
        let mut terminal = Terminal::with(kind, no_color, &arguments);
        let seen = terminal.until("by name");
        let case = format!("{kind}, {no_color:?}, {flag:?}: {seen:?}");
        assert_eq!(seen.contains("\u{1b}[38;5;"), has_colours, "{case}");
        assert!(seen.contains("4 leaving") && seen.contains("protected"), "{case}");
        terminal.press("q");
        terminal.ends_and_gives_it_back();
    }
}

/// Named columns and a selector on a screen, and both once more in a pipe.
#[test]
fn columns_and_a_selector_are_for_terminals_and_pipes() {
    let asked = [
        "--columns",
        "zone,name",
        "-l",
        "kubernetes.io/hostname in (calm,busy)",
    ];
    let arguments: Vec<&str> = TOP.into_iter().chain(asked).collect();
    let mut terminal = Terminal::named("xterm", &arguments);
    let seen = terminal.until("by name");
    assert!(seen.contains("ZONE         NODE"), "{seen:?}");
    assert!(
        seen.contains("test-zone-a  calm") && !seen.contains("guarded"),
        "{seen:?}"
    );
    terminal.press("q");
    terminal.ends_and_gives_it_back();
    let output = Command::new(env!("CARGO_BIN_EXE_spokeshave"))
        .args(&arguments)
        .arg("--once")
        .env_remove("COLUMNS")
        .output()
        .expect("the program runs");
    let table = String::from_utf8(output.stdout).expect("UTF-8");
    let expected = "ZONE         NODE\ntest-zone-a  busy\ntest-zone-a  calm\n";
    assert!(table.ends_with(expected), "{table}");
    assert!(
        table.starts_with("$0.760/h ") && table.contains("  7 nodes "),
        "{table}"
    );
}

/// A node and its NodeClaim as a dump has them.
fn machine(index: usize) -> [Value; 2] {
    let (name, at) = (format!("default-{index:05}"), "2026-03-02T11:00:00Z");
    let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": at});
    let labels = json!({
        "karpenter.sh/nodepool": "default", "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true",
        "karpenter.sh/capacity-type": "on-demand", "topology.kubernetes.io/zone": "test-zone-a",
        "node.kubernetes.io/instance-type": "c-4x-amd64-linux",
        "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "kubernetes.io/hostname": name,
    });
    let room = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
    let id = format!("kwok://{name}");
    let class = json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"});
    let conditions = ["Launched", "Registered", "Initialized"].map(condition);
    [
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "uid": format!("n-{name}"), "labels": labels, "creationTimestamp": at},
            "spec": {"providerID": id},
            "status": {"capacity": room, "allocatable": room, "conditions": [condition("Ready")]},
        }),
        json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": name, "uid": format!("c-{name}"), "labels": labels, "creationTimestamp": at},
            "spec": {"nodeClassRef": class, "requirements": []},
            "status": {"providerID": id, "nodeName": name, "capacity": room, "allocatable": room, "conditions": conditions},
        }),
    ]
}

/// Of five thousand nodes a redraw writes those that there is room for.
#[test]
fn five_thousand_nodes_cost_a_screenful() {
    const SCREENFUL: usize = 30 * 120 * 4;
    let items: Vec<Value> = (0..5000).flat_map(machine).collect();
    let dump = json!({"apiVersion": "v1", "kind": "List", "items": items});
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("shop.json");
    std::fs::write(&path, dump.to_string()).expect("written");
    let file = path.display().to_string();
    let mut terminal = Terminal::named("xterm", &["top", "-f", &file, "--now", "2026-03-02T12:00:00Z"]);
    let seen = terminal.until("by name");
    assert!(seen.contains("  5000 nodes"), "{seen:?}");
    for (keys, chosen) in [
        ("\u{1b}[F", "\u{1b}[7mdefault-04999"),
        ("k", "\u{1b}[7mdefault-04998"),
        ("\u{1b}[H", "\u{1b}[7mdefault-00000"),
        ("/04321\rj", "\u{1b}[7mdefault-04321"),
    ] {
        terminal.press(keys);
        let seen = terminal.until(chosen);
        // Each of the letters of a filter draws it anew.
        assert!(seen.len() <= SCREENFUL * keys.len(), "{} bytes", seen.len());
    }
    terminal.press("q");
    terminal.ends_and_gives_it_back();
}
