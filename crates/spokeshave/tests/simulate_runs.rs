//! Runs of `spokeshave simulate` as a whole: interrupted, foretold by `--check`, and the same from another folder.
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags, fcntl_setfl, mknodat};
use rustix::pipe::fcntl_setpipe_size;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Half a day of a few pods: two Deployments that come and go, and jobs of a fixed length.
const SCENARIO: &str = "\
apiVersion: simulate.spokeshave.dev/v1alpha1
kind: Scenario
metadata: {name: runs}
spec:
  start: 2026-03-02T00:00:00Z
  duration: 12h
  warmup: 10m
  seeds: 1
  cluster:
    manifests: [pools.yaml]
  workloads:
  - name: web
    deployments: {count: 2, cpu: [250m, 500m], memory: 512Mi}
    replicas: {low: 4, high: 12, peakAt: \"06:00\"}
    ready: 8s
  - name: work
    jobs: {cron: \"30 2,5 * * *\", count: 10, cpu: 1, memory: 1Gi, runs: 2h}
    ready: 8s
  policies:
  - {name: never, model: none}
  - {name: now}
  baseline: never
";

const POOLS: &str = "\
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

/// What a pod of each workload asks for, in thousandths of a core.
const CPU: [(&str, u64); 3] = [("web-0-", 250), ("web-1-", 500), ("work-", 1_000)];

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    fs::write(&path, text).expect("written");
    path.display().to_string()
}

fn folder() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(folder.path(), "pools.yaml", POOLS);
    let scenario = write(folder.path(), "scenario.yaml", SCENARIO);
    (folder, scenario)
}

fn simulate(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spokeshave"));
    command.arg("simulate").args(arguments).env("COLUMNS", "160");
    command
}

fn answer(arguments: &[&str]) -> Output {
    let output = simulate(arguments).output().expect("the program runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// A program that does not outlive its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A pipe in place of a file that the program is about to write; it can write little of it before somebody reads.
fn pipe(path: &str) -> File {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let reader = OpenOptions::new().read(true).custom_flags(nonblocking).open(path);
    let reader = reader.expect("its end to read from");
    fcntl_setpipe_size(&reader, 4_096).expect("a small one");
    reader
}

/// Two runs, one after the other. The log of the second is a pipe that nobody reads until the interrupt has been heard, so that the run cannot end before.
#[test]
fn an_interrupt_leaves_what_is_finished_and_marks_the_rest_partial() {
    let (folder, scenario) = folder();
    let log = folder.path().join("log.jsonl").display().to_string();
    let second = format!("{log}.1.part");
    let mut reader = pipe(&second);
    let command = simulate(&[&scenario, "--jobs", "1", "--events", &log, "-o", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut program = Running(command.expect("the program runs"));
    let deadline = Timespec {
        tv_sec: 300,
        tv_nsec: 0,
    };
    let ready = poll(&mut [PollFd::new(&reader, PollFlags::IN)], Some(&deadline));
    assert_eq!(ready, Ok(1), "the second run writes its log");
    // What is put together at the end is this file; the program still writes into the pipe.
    fs::remove_file(&second).expect("removed");
    fs::write(&second, "{\"what\": \"the second\"}\n").expect("written");
    kill_process(Pid::from_child(&program.0), Signal::INT).expect("interrupted");
    let mut heard = String::new();
    let mut stderr = BufReader::new(program.0.stderr.take().expect("its errors"));
    while !heard.contains("Interrupted: writing what has been simulated so far.") {
        assert!(
            stderr.read_line(&mut heard).expect("text") > 0,
            "it ended: {heard}"
        );
    }
    fcntl_setfl(&reader, OFlags::empty()).expect("it waits from now on");
    let mut written = String::new();
    reader.read_to_string(&mut written).expect("the rest of the log");
    let last = written.lines().next_back().expect("a line");
    let last: Value = serde_json::from_str(last).expect("JSON");
    assert_eq!(
        (&last["policy"], &last["what"]),
        (&"now".into(), &"run interrupted".into())
    );
    let mut stdout = String::new();
    let pipe = program.0.stdout.as_mut().expect("its answer");
    pipe.read_to_string(&mut stdout).expect("text");
    assert_eq!(program.0.wait().expect("ended").code(), Some(130), "{heard}");
    let found: Value = serde_json::from_str(&stdout).expect("JSON");
    let runs = found["runs"].as_array().expect("runs");
    let told: Vec<(&str, bool)> = runs
        .iter()
        .map(|run| (run["policy"].as_str().expect("a name"), run["partial"] == true))
        .collect();
    assert_eq!(told, [("never", false), ("now", true)]);
    let whole = answer(&[&scenario, "--policy", "never", "-o", "json"]);
    assert_eq!(
        json(&whole)["runs"][0]["digest"],
        runs[0]["digest"],
        "what was finished is what it is without an interrupt"
    );
    let log = fs::read_to_string(log).expect("the log");
    assert!(log.starts_with("{\"policy\":\"never\""), "{log}");
    assert!(
        log.ends_with("{\"what\": \"the second\"}\n"),
        "both logs, in order"
    );
}

/// What `--check` foretells is what a run counts in which nothing is evicted, within 1 %.
#[test]
fn a_check_foretells_pods_a_day_and_peak_cores() {
    let (folder, scenario) = folder();
    let log = folder.path().join("log.jsonl").display().to_string();
    let check = json(&answer(&[&scenario, "--check", "-o", "json"]));
    answer(&[&scenario, "--policy", "never", "--events", &log]);
    let (mut born, mut cores, mut peak) = (0_u64, 0, 0);
    let mut asked = BTreeMap::new();
    let mut last_ms = 0;
    for line in fs::read_to_string(log).expect("the log").lines() {
        let line: Value = serde_json::from_str(line).expect("JSON");
        let at_ms = line["atMs"].as_u64().expect("a time");
        if at_ms > last_ms {
            peak = peak.max(cores);
            last_ms = at_ms;
        }
        let pod = line["of"].as_str().expect("a name").to_owned();
        match line["what"].as_str().expect("a word") {
            "born" => {
                let name = pod.strip_prefix("default/").expect("its namespace");
                let known = CPU.iter().find(|(prefix, _)| name.starts_with(prefix));
                let (_, cpu) = known.unwrap_or_else(|| panic!("a pod of the scenario: {name}"));
                born += 1;
                cores += cpu;
                asked.insert(pod, *cpu);
            }
            "stopping" | "left" => cores -= asked.remove(&pod).unwrap_or(0),
            _ => {}
        }
    }
    peak = peak.max(cores);
    let number = |name: &str| check[name].as_f64().expect("a number");
    let expected = number("podsAtStart") + number("podsPerDay") * number("days");
    let is_near = |found: f64, expected: f64| (found - expected).abs() <= expected * 0.01;
    assert!(expected > 30.0, "there is something to count: {check}");
    assert!(
        is_near(born as f64, expected),
        "{born} pods, and {expected} were foretold"
    );
    let (peak, expected) = (peak as f64 / 1_000.0, number("peakCores"));
    assert!(
        is_near(peak, expected),
        "{peak} cores, and {expected} were foretold"
    );
}

/// Inputs are named as the scenario names them, so that the answer is the same wherever the files are.
#[test]
fn the_answer_does_not_depend_on_where_the_files_are() {
    let short = SCENARIO.replace("duration: 12h", "duration: 1h");
    let scenario = short.replace(
        "  policies:\n",
        "  - name: recorded\n    import: {format: csv, file: tables/pods.csv, columns: {start: begin, cpu: cores}}\n  policies:\n",
    );
    let scenario = scenario.replace(
        "manifests: [pools.yaml]",
        "manifests: [pools.yaml]\n    snapshot: dumps",
    );
    assert!(scenario.contains("snapshot: dumps") && scenario.contains("pods.csv"));
    let pod = "\
apiVersion: v1
kind: Pod
metadata: {name: alone, namespace: default}
spec: {containers: [{name: main, resources: {requests: {cpu: 100m, memory: 64Mi}}}]}
";
    let mut answers = Vec::new();
    for (name, jobs) in [("here", "1"), ("somewhere/else", "2")] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let place = folder.path().join(name);
        write(&place, "pools.yaml", POOLS);
        write(&place, "tables/pods.csv", "begin,cores\n0,1\n600,2\n");
        write(&place, "dumps/pod.yaml", pod);
        let path = write(&place, "scenario.yaml", &scenario);
        answers.push(answer(&[&path, "--jobs", jobs, "-o", "json"]));
    }
    let files: Vec<String> = json(&answers[0])["setting"]["inputs"]
        .as_array()
        .expect("inputs")
        .iter()
        .map(|input| input["file"].as_str().expect("a path").to_owned())
        .collect();
    assert_eq!(files, ["pools.yaml", "dumps/pod.yaml", "tables/pods.csv"]);
    let [here, there] = [&answers[0], &answers[1]].map(|answer| String::from_utf8_lossy(&answer.stdout));
    assert_eq!(here, there);
}
