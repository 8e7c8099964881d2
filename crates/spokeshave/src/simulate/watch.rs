//! What a simulation writes besides its figures: the event log of all runs, and of one run a trace and the cluster's objects at one time.
//!
//! Owns the files and their order, which does not depend on which run ends first. What is in a line is the engine's business.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Error, Result};
use serde::Serialize;
use serde_json::Value;
use spokeshave_scenario::Timeline;
use spokeshave_simulate::perfetto::Trace;
use spokeshave_simulate::{Line, ObjectsAt, Policy, Run, Watch, World};

use super::args::{EngineName, SimulateArgs};
use super::{engine, may_be_written, processor_time};
use crate::text::say;

/// What is to be written.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    engine: EngineName,
    events: Option<PathBuf>,
    trace: Option<PathBuf>,
    /// When, in milliseconds since the scenario's start, and where.
    objects: Option<(u64, PathBuf)>,
    /// The position of the run that trace and objects are of.
    chosen: usize,
}

/// A run to be simulated.
pub(crate) struct Life<'a> {
    /// Its position among all runs.
    pub(crate) index: usize,
    pub(crate) world: &'a World,
    pub(crate) timeline: &'a Timeline,
    pub(crate) policy: &'a Policy,
    pub(crate) seed: u64,
    pub(crate) is_stopped: &'a dyn Fn() -> bool,
}

/// A run that was lived.
pub(crate) struct Lived {
    pub(crate) run: Run,
    /// Its part of the event log is whole, or none is asked for.
    pub(crate) has_log: bool,
    /// The first of its files that could not be written.
    pub(crate) unwritten: Option<Error>,
}

/// A line of the event log with the run that it is of.
#[derive(Serialize)]
struct Entry<'a> {
    policy: &'a str,
    seed: u64,
    #[serde(flatten)]
    line: &'a Line<'a>,
}

impl Outputs {
    /// What the command line asks for. Trace and objects are of seed 1 of the policy at this position.
    pub(crate) fn new(args: &SimulateArgs, policy: usize) -> Self {
        Outputs {
            engine: args.engine,
            events: args.events.clone(),
            trace: args.perfetto.clone(),
            objects: args.snapshot_at.zip(args.snapshot.clone()),
            chosen: policy,
        }
    }

    /// Tries whether all files can be written. The parts of the event log are beside it.
    ///
    /// # Errors
    /// One cannot.
    pub(crate) fn try_all(&self) -> Result<()> {
        let log = self.events.iter();
        let parts = log.clone().map(|path| part(path, 0));
        let objects = self.objects.iter().map(|(_, path)| path.clone());
        let whole = log.chain(&self.trace).cloned();
        whole
            .chain(objects)
            .chain(parts)
            .try_for_each(|path| may_be_written(&path))
    }

    /// Lives one run, and writes what is asked of it. A file that cannot be written is no reason to lose the run.
    ///
    /// # Errors
    /// The simulated cluster is not in order.
    pub(crate) fn live(&self, life: &Life<'_>) -> Result<Lived> {
        let is_chosen = life.index == self.chosen;
        let mut log = self
            .events
            .as_ref()
            .map(|path| Log::create(&part(path, life.index)));
        let mut trace = self
            .trace
            .as_ref()
            .filter(|_| is_chosen)
            .map(|_| Trace::default());
        let wanted = self.objects.as_ref().filter(|_| is_chosen);
        let mut objects: Option<serde_json::Result<Value>> = None;
        let is_watched = log.is_some() || trace.is_some();
        let (policy, seed) = (life.policy.name.as_str(), life.seed);
        let mut last_ms = 0;
        let mut take_line = |line: Line<'_>| {
            last_ms = line.at_ms;
            if let Some(log) = &mut log {
                log.add(&Entry {
                    policy,
                    seed,
                    line: &line,
                });
            }
            if let Some(trace) = &mut trace {
                trace.take(&line);
            }
        };
        let mut take_objects = |all: &spokeshave_simulate::Objects| objects = Some(all.to_list());
        let watch = Watch {
            lines: if is_watched { Some(&mut take_line) } else { None },
            objects: wanted.map(|(at_ms, _)| ObjectsAt {
                at_ms: *at_ms,
                take: &mut take_objects,
            }),
        };
        let before = processor_time::of_this_thread_ms();
        let mut run = engine::live(self.engine, life, watch)?;
        let after = processor_time::of_this_thread_ms();
        run.work.cpu_ms = after
            .zip(before)
            .map(|(after, before)| after.saturating_sub(before));
        let logged = log.map_or(Ok(()), |mut log| {
            if run.partial {
                log.add(&Entry {
                    policy,
                    seed,
                    line: &Line {
                        at_ms: last_ms,
                        what: "run interrupted",
                        of: "",
                        more: "",
                    },
                });
            }
            log.finish()
        });
        let traced = match (trace, &self.trace) {
            (Some(trace), Some(path)) => {
                let end_ms = (!run.partial).then_some(life.world.duration_ms);
                write(path, &trace.finish(end_ms))
            }
            _ => Ok(()),
        };
        let kept = match (objects, wanted) {
            (Some(objects), Some((_, path))) => objects
                .map_err(Error::from)
                .and_then(|objects| write(path, &objects)),
            (None, Some((_, path))) => {
                say(&format!(
                    "note: interrupted before --snapshot-at: {} has not been written",
                    path.display()
                ));
                Ok(())
            }
            (_, None) => Ok(()),
        };
        Ok(Lived {
            run,
            has_log: logged.is_ok(),
            unwritten: logged.and(traced).and(kept).err(),
        })
    }

    /// Puts the event log together from those of these runs, in this order; with none it writes nothing. What all runs have left on the way is removed.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub(crate) fn finish(&self, runs: Option<&[usize]>, all: usize) -> Result<()> {
        let Some(path) = &self.events else {
            return Ok(());
        };
        let whole = || -> io::Result<()> {
            let Some(runs) = runs else { return Ok(()) };
            let mut file = BufWriter::new(File::create(path)?);
            for run in runs {
                io::copy(&mut File::open(part(path, *run))?, &mut file)?;
            }
            file.flush()
        };
        let written = whole().with_context(|| format!("cannot write {}", path.display()));
        self.remove_parts(all);
        written
    }

    /// Removes what so many runs have left on the way to the event log.
    pub(crate) fn remove_parts(&self, all: usize) {
        let Some(path) = &self.events else { return };
        for run in 0..all {
            // Not every run has begun.
            drop(fs::remove_file(part(path, run)));
        }
    }
}

/// The log of one run until all are combined: in the same directory, so that it is on the same file system.
fn part(path: &Path, run: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{run}.part"));
    PathBuf::from(name)
}

fn write(path: &Path, value: &Value) -> Result<()> {
    let whole = || -> io::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        serde_json::to_writer(&mut file, value)?;
        file.write_all(b"\n")?;
        file.flush()
    };
    whole().with_context(|| format!("cannot write {}", path.display()))
}

/// The event log of one run on its way into a file. The first failure stops the writing, and is reported at the end.
struct Log {
    path: PathBuf,
    file: io::Result<BufWriter<File>>,
}

impl Log {
    fn create(path: &Path) -> Self {
        Log {
            path: path.to_owned(),
            file: File::create(path).map(BufWriter::new),
        }
    }

    fn add(&mut self, entry: &Entry<'_>) {
        let Ok(file) = &mut self.file else { return };
        let written = serde_json::to_writer(&mut *file, entry).map_err(io::Error::from);
        if let Err(error) = written.and_then(|()| file.write_all(b"\n")) {
            self.file = Err(error);
        }
    }

    fn finish(self) -> Result<()> {
        let written = self.file.and_then(|mut file| file.flush());
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }
}
