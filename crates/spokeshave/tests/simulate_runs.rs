//! Runs of `spokeshave simulate` as a whole: interrupted, foretold by `--check`, the same from another folder, with files that cannot be written, and with owners
//! that share their names.
#![cfg(target_os = "linux")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags, fcntl_setfl, mknodat};
use rustix::pipe::fcntl_setpipe_size;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

mod simulated;
use simulated::{POOLS, json_of, program, text, write};

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

/// What a pod of each workload asks for, in thousandths of a core.
const CPU: [(&str, u64); 3] = [("web-0-", 250), ("web-1-", 500), ("work-", 1_000)];

fn folder() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write(folder.path(), "pools.yaml", POOLS);
    let scenario = write(folder.path(), "scenario.yaml", SCENARIO);
    (folder, scenario)
}

fn simulate(arguments: &[&str]) -> Command {
    let mut command = program();
    command.arg("simulate").args(arguments).env("COLUMNS", "160");
    command
}

fn answer(arguments: &[&str]) -> Output {
    let output = simulate(arguments).output().expect("the program runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    output
}

/// An answer in JSON but for its last section: how long runs were on a processor is never the same.
fn without_took(output: &Output) -> String {
    let text = text(&output.stdout);
    let (before, took) = text.split_once("\n  \"took\": [").expect("the section");
    assert!(
        took.contains("\"cpuSeconds\": ") && took.ends_with("\n  ]\n}\n"),
        "{took}"
    );
    before.to_owned()
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
        json_of(&whole)["runs"][0]["digest"],
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

/// What is in a folder, in order.
fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let entries = entries.map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Two runs at a time. The log of the first is a pipe that nobody reads: it never comes to hear of the first signal.
#[test]
fn a_second_signal_ends_it_at_once_and_leaves_no_part_of_a_log() {
    let (folder, scenario) = folder();
    let log = folder.path().join("log.jsonl").display().to_string();
    let reader = pipe(&format!("{log}.0.part"));
    let command = simulate(&[&scenario, "--jobs", "2", "--events", &log])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut program = Running(command.expect("the program runs"));
    let deadline = Timespec {
        tv_sec: 300,
        tv_nsec: 0,
    };
    let ready = poll(&mut [PollFd::new(&reader, PollFlags::IN)], Some(&deadline));
    assert_eq!(ready, Ok(1), "the first run writes its log");
    kill_process(Pid::from_child(&program.0), Signal::TERM).expect("a first signal");
    let mut heard = String::new();
    let mut stderr = BufReader::new(program.0.stderr.take().expect("its errors"));
    while !heard.contains("Interrupted: writing what has been simulated so far.") {
        assert!(
            stderr.read_line(&mut heard).expect("text") > 0,
            "it ended: {heard}"
        );
    }
    kill_process(Pid::from_child(&program.0), Signal::TERM).expect("a second one");
    let stdout = program.0.stdout.take().expect("its answer");
    let ended = poll(&mut [PollFd::new(&stdout, PollFlags::IN)], Some(&deadline));
    assert_eq!(ended, Ok(1), "it ends although a run does not");
    assert_eq!(program.0.wait().expect("ended").code(), Some(130), "{heard}");
    assert_eq!(files(folder.path()), ["pools.yaml", "scenario.yaml"]);
}

/// What `--check` foretells is what a run counts in which nothing is evicted, within 1 %.
#[test]
fn a_check_foretells_pods_a_day_and_peak_cores() {
    let (folder, scenario) = folder();
    let log = folder.path().join("log.jsonl").display().to_string();
    let check = json_of(&answer(&[&scenario, "--check", "-o", "json"]));
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
    let files: Vec<String> = json_of(&answers[0])["setting"]["inputs"]
        .as_array()
        .expect("inputs")
        .iter()
        .map(|input| input["file"].as_str().expect("a path").to_owned())
        .collect();
    assert_eq!(files, ["pools.yaml", "dumps/pod.yaml", "tables/pods.csv"]);
    assert_eq!(without_took(&answers[0]), without_took(&answers[1]));
}

/// What stands at the place of the log's first part is written over by the first run, and removed after the last one.
#[test]
fn files_that_cannot_be_written_cost_no_simulation() {
    let (folder, scenario) = folder();
    let place = |name: &str| folder.path().join(name).display().to_string();
    let (log, nowhere, directory) = (place("log.jsonl"), place("nowhere/x.json"), place("directory"));
    fs::create_dir(&directory).expect("a directory");
    let at = ["--snapshot-at", "1h", "--snapshot"];
    for (options, wrong, log) in [
        (vec!["--perfetto", nowhere.as_str()], &nowhere, &log),
        (vec!["--perfetto", directory.as_str()], &directory, &log),
        ([&at[..], &[nowhere.as_str()][..]].concat(), &nowhere, &log),
        (vec![], &directory, &directory),
    ] {
        let part = format!("{log}.0.part");
        fs::write(&part, "kept").expect("written");
        let events = [scenario.as_str(), "--events", log.as_str()];
        let arguments = [&events[..], &options[..]].concat();
        let output = simulate(&arguments).output().expect("the program runs");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        let expected = format!("cannot write {wrong}");
        assert!(said.contains(&expected), "{arguments:?}: {said}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        let part = fs::read_to_string(&part).expect("still there");
        assert_eq!(part, "kept", "{arguments:?}");
    }
}

/// The device has no room for a single byte, and says so only when something is written.
#[test]
fn a_full_disk_costs_the_file_and_not_the_figures() {
    let (folder, scenario) = folder();
    let log = folder.path().join("log.jsonl").display().to_string();
    let part = format!("{log}.0.part");
    symlink("/dev/full", &part).expect("a link");
    let asked = [scenario.as_str(), "--policy", "never", "-o", "json"];
    let whole = answer(&asked);
    for (options, wrong) in [
        (vec!["--perfetto", "/dev/full"], "/dev/full"),
        (
            vec!["--snapshot-at", "1h", "--snapshot", "/dev/full"],
            "/dev/full",
        ),
        (vec!["--events", log.as_str()], part.as_str()),
    ] {
        let arguments = [&asked[..], &options[..]].concat();
        let output = simulate(&arguments).output().expect("the program runs");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{options:?}: {said}");
        let expected = format!("cannot write {wrong}");
        assert!(said.contains(&expected), "{options:?}: {said}");
        assert_eq!(without_took(&output), without_took(&whole), "{options:?}");
    }
    assert!(!Path::new(&log).exists(), "no log is better than half of one");
}

/// Two hours of these workloads.
fn scenario_of(workloads: &str) -> String {
    let (head, rest) = SCENARIO.split_once("  workloads:\n").expect("workloads");
    let (_, tail) = rest.split_once("  policies:\n").expect("policies");
    let text = format!("{head}  workloads:\n{workloads}  policies:\n{tail}");
    text.replace("duration: 12h", "duration: 2h")
}

fn with_dump(scenario: &str) -> String {
    scenario.replace(
        "manifests: [pools.yaml]\n",
        "manifests: [pools.yaml]\n    snapshot: dump.yaml\n",
    )
}

/// A Deployment and a CronJob of a chart.
const DUMP: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata: {name: app, namespace: shop}
spec:
  replicas: 10
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, resources: {requests: {cpu: '1', memory: 1Gi}}}]}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: CRON, namespace: shop}
spec:
  schedule: '*/20 * * * *'
  jobTemplate:
    spec:
      parallelism: 4
      completions: 4
      template:
        metadata: {labels: {app: cron}}
        spec: {containers: [{name: main, resources: {requests: {cpu: '2', memory: 1Gi}}}]}
";

fn events(log: &str) -> Vec<Value> {
    let text = fs::read_to_string(log).expect("the log");
    text.lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

fn word<'v>(line: &'v Value, field: &str) -> &'v str {
    line[field].as_str().expect("a word")
}

/// Owners of different kinds may have one name, and whether they have it changes no figure.
#[test]
fn pods_of_a_deployment_and_of_a_cron_job_of_one_name_are_different_pods() {
    let mut figures = Vec::new();
    for name in ["app", "app-cron"] {
        let (folder, _) = folder();
        write(folder.path(), "dump.yaml", &DUMP.replace("CRON", name));
        let scenario = write(folder.path(), "scenario.yaml", &with_dump(&scenario_of("")));
        let log = folder.path().join("log.jsonl").display().to_string();
        let found = json_of(&answer(&[&scenario, "--events", &log, "-o", "json"]));
        let runs = found["runs"].as_array().expect("runs").iter();
        figures.push(runs.map(|run| run["values"].clone()).collect::<Vec<_>>());
        let (mut living, mut born) = (BTreeSet::new(), 0);
        for line in events(&log) {
            let pod = (word(&line, "policy").to_owned(), word(&line, "of").to_owned());
            match word(&line, "what") {
                "born" => {
                    assert!(living.insert(pod), "it lives already: {line}");
                    born += 1;
                }
                "left" => {
                    living.remove(&pod);
                }
                _ => {}
            }
        }
        // Under each of two policies: the Deployment's, and four each at the start and five times after it.
        assert!(born >= 2 * (10 + 4 * 6), "{born}");
    }
    assert_eq!(figures[0].len(), 2);
    assert_eq!(figures[0], figures[1]);
}

/// Pods of tables that have no groups would all have one owner; two tables take the names of their workloads, and a namespace of its own keeps a third apart.
#[test]
fn tables_side_by_side_have_pods_of_their_own() {
    let (folder, _) = folder();
    write(folder.path(), "pods.csv", "begin,cores\n0,1\n0,1\n60,1\n");
    let import = "    import: {format: csv, file: pods.csv, columns: {start: begin, cpu: cores}}\n";
    let workloads = format!(
        "  - name: a\n{import}  - name: b\n{import}  - name: c\n    namespace: other\n    ready: 10m\n{import}"
    );
    let scenario = write(folder.path(), "scenario.yaml", &scenario_of(&workloads));
    let log = folder.path().join("log.jsonl").display().to_string();
    answer(&[&scenario, "--policy", "never", "--events", &log]);
    let (mut bound, mut took) = (BTreeMap::new(), BTreeMap::new());
    for line in events(&log) {
        let pod = word(&line, "of").to_owned();
        let at_ms = line["atMs"].as_u64().expect("a time");
        match word(&line, "what") {
            "bound" => {
                bound.insert(pod, at_ms);
            }
            "started" => {
                took.insert(pod.clone(), at_ms - bound[&pod]);
            }
            _ => {}
        }
    }
    let owners = ["default/a-pods", "default/b-pods", "other/pods"];
    let expected: Vec<String> = owners
        .iter()
        .flat_map(|owner| (0..3).map(move |number| format!("{owner}-j{number:07}")))
        .collect();
    let started: Vec<&String> = took.keys().collect();
    assert_eq!(started, expected.iter().collect::<Vec<_>>());
    for (pod, took) in &took {
        let waits = pod.starts_with("other/");
        assert_eq!(*took == 600_000, waits, "{pod} was ready after {took} ms");
    }
}

#[test]
fn two_owners_of_one_kind_and_name_are_refused_with_both_places() {
    let shape = "{count: COUNT, cpu: 1, memory: 1Gi}\n    replicas: 2\n";
    let two = shape.replace("COUNT", "2");
    let one = shape.replace("COUNT", "1");
    let numbered = format!("  - name: web\n    deployments: {two}  - name: web-1\n    deployments: {one}");
    let recorded = format!("  - name: app\n    namespace: shop\n    deployments: {one}");
    let (folder, scenario) = folder();
    let dump = write(folder.path(), "dump.yaml", &DUMP.replace("CRON", "app"));
    for (wrong, expected) in [
        (
            scenario_of(&numbered),
            format!(
                "error: {scenario}:15: spec.workloads[1].name: workload \"web-1\" has Deployment default/web-1, and so has workload \"web\" at {scenario}:12; expected one owner of each kind"
            ),
        ),
        (
            with_dump(&scenario_of(&recorded)),
            format!(
                "error: {scenario}:13: spec.workloads[0].name: workload \"app\" has Deployment shop/app, and so has the dump to begin with, {dump}; expected one owner of each kind"
            ),
        ),
    ] {
        write(folder.path(), "scenario.yaml", &wrong);
        let output = simulate(&[&scenario, "--check"]).output();
        let output = output.expect("the program runs");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(&expected), "expected {expected}\nfound {said}");
    }
    // Of different kinds, or in different namespaces, they are different owners.
    let other_kind = with_dump(&scenario_of(&recorded))
        .replace("deployments: {", "statefulSets: {replicas: 2, ")
        .replace("    replicas: 2\n", "");
    let elsewhere = with_dump(&scenario_of(&recorded)).replace("namespace: shop", "namespace: other");
    for text in [other_kind, elsewhere] {
        write(folder.path(), "scenario.yaml", &text);
        answer(&[&scenario, "--check"]);
    }
}
