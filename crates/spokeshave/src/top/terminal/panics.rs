//! A panic while the terminal is ours: the test runs itself once more, on a terminal of its own, and panics there.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Command, ExitStatus, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};

use super::{Ours, give_back_on_panic};

/// Set where the test runs for the second time.
const SECOND: &str = "SPOKESHAVE_TEST_PANICS";
/// Written when the program has ended.
const END: &str = "-- the end --";
const ENTER_ALTERNATE_SCREEN: &str = "\u{1b}[?1049h";
const LEAVE_ALTERNATE_SCREEN: &str = "\u{1b}[?1049l";
const SHOW_CURSOR: &str = "\u{1b}[?25h";

fn a_terminal() -> (OwnedFd, File) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&ours).expect("granted");
    unlockpt(&ours).expect("unlocked");
    let name = ptsname(&ours, Vec::new()).expect("a name");
    let theirs = OpenOptions::new()
        .read(true)
        .write(true)
        .open(name.to_str().expect("ASCII"));
    (ours, theirs.expect("their side"))
}

/// Runs a test for the second time, on a terminal that is as it was afterwards: how that ended, and what was seen there.
fn second(test: &str) -> (ExitStatus, String) {
    let (ours, theirs) = a_terminal();
    let modes = |theirs: &File| tcgetattr(theirs).expect("modes").local_modes;
    let before = modes(&theirs);
    assert!(before.contains(LocalModes::ICANON | LocalModes::ECHO));
    let side = || Stdio::from(theirs.try_clone().expect("a copy"));
    let this = format!("top::terminal::panics::{test}");
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", &this, "--nocapture"])
        .env(SECOND, "1")
        .stdin(side())
        .stdout(side())
        .stderr(side())
        .spawn()
        .expect("it runs");
    let mut ours = File::from(ours);
    let reading = std::thread::spawn(move || {
        let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
        while !String::from_utf8_lossy(&seen).contains(END) {
            let read = ours.read(&mut buffer).expect("their side is open");
            seen.extend_from_slice(&buffer[..read]);
        }
        (ours, seen)
    });
    let ended = child.wait().expect("it ends");
    // However it ended, reading ends.
    (&theirs).write_all(END.as_bytes()).expect("written");
    // Modes are those of a terminal whose other side is open.
    let (_ours, seen) = reading.join().expect("read");
    assert_eq!(modes(&theirs), before);
    (ended, String::from_utf8_lossy(&seen).into_owned())
}

fn at(seen: &str, text: &str) -> usize {
    seen.find(text)
        .unwrap_or_else(|| panic!("no {text:?} in {seen:?}"))
}

#[test]
fn a_panic_gives_the_terminal_back_and_is_readable() {
    if std::env::var_os(SECOND).is_some() {
        give_back_on_panic();
        let _ours = Ours::take(true).expect("taken");
        panic!("injected");
    }
    let (ended, seen) = second("a_panic_gives_the_terminal_back_and_is_readable");
    assert!(!ended.success(), "{seen:?}");
    let told = at(&seen, "injected");
    assert!(at(&seen, LEAVE_ALTERNATE_SCREEN) < told, "{seen:?}");
    assert!(at(&seen, SHOW_CURSOR) < told, "{seen:?}");
}

#[test]
fn after_a_panic_that_was_caught_the_terminal_is_taken_once_more() {
    if std::env::var_os(SECOND).is_some() {
        give_back_on_panic();
        let mut ours = Ours::take(true).expect("taken");
        let caught: std::thread::Result<()> = std::panic::catch_unwind(|| panic!("injected"));
        assert!(caught.is_err());
        ours.take_again().expect("taken once more");
        return;
    }
    let (ended, seen) = second("after_a_panic_that_was_caught_the_terminal_is_taken_once_more");
    assert!(ended.success(), "{seen:?}");
    let (before, after) = seen.split_at(at(&seen, "injected"));
    assert!(at(before, LEAVE_ALTERNATE_SCREEN) > at(before, ENTER_ALTERNATE_SCREEN));
    assert!(at(after, LEAVE_ALTERNATE_SCREEN) > at(after, ENTER_ALTERNATE_SCREEN));
}
