//! `spokeshave top` on a terminal of its own: what is on the screen stays there, and keys are heard.
#![cfg(target_os = "linux")]

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// A terminal, and the program on it.
struct Terminal {
    ours: File,
    child: Child,
}

impl Terminal {
    fn run(arguments: &[&str]) -> Self {
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
        let theirs = || Stdio::from(theirs.try_clone().expect("a copy"));
        let child = Command::new(env!("CARGO_BIN_EXE_spokeshave"))
            .args(arguments)
            .env("TERM", "xterm")
            .env("NO_COLOR", "1")
            .stdin(theirs())
            .stdout(theirs())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program runs");
        Self {
            ours: File::from(ours),
            child,
        }
    }

    /// Reads until the screen has shown a text; panics with what it showed if the program ends before.
    fn until(&mut self, text: &str) {
        let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
        while !String::from_utf8_lossy(&seen).contains(text) {
            // The other side is closed when the program has ended: an error or nothing.
            let read = self.ours.read(&mut buffer).unwrap_or(0);
            assert!(
                read > 0,
                "it ended before {text:?} was shown: {}",
                String::from_utf8_lossy(&seen)
            );
            seen.extend_from_slice(&buffer[..read]);
        }
    }

    fn press(&mut self, keys: &str) {
        self.ours.write_all(keys.as_bytes()).expect("keys");
    }
}

/// A dump is read once and judged once; what it shows stays until somebody quits.
#[test]
fn a_dump_stays_on_the_screen_and_answers_to_keys() {
    let dump = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/doctor/cluster.yaml");
    let mut terminal = Terminal::run(&["top", "-f", &dump.display().to_string()]);
    terminal.until("cpu");
    terminal.press("?");
    terminal.until("Ctrl-C");
    terminal.press("q");
    let ended = terminal.child.wait().expect("it ends");
    assert!(ended.success(), "{ended}");
}
