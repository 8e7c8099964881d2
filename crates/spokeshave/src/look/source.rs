//! Where a world comes from: a dump, a cluster that is listed, or an operator in this process.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use serde_json::Value;
use spokeshave_api::disruption::Disruption;
use spokeshave_controllers::{Observer, Seen};
use spokeshave_model::ClusterState;
use spokeshave_model::scheduler_profiles::SchedulerProfiles;
use spokeshave_plan::Policy;
use spokeshave_provider_kwok::Catalog;
use spokeshave_story::settings::SettingsInForce;
use spokeshave_view::{Missing, World};
use tokio::time::Instant;

use super::followed::Followed;
use super::kinds;
use crate::cluster::Cluster;
use crate::explain::source::{beside_in_cluster, read_beside};
use crate::plan::dump::Dump;
use crate::plan::ec2::Ec2;
use crate::plan::in_force::InForce;
use crate::plan::world::{Origin, World as Read, mark_held};
use crate::plan::{self, SourceArgs, live};
use crate::scheduler_config::{self, SchedulerConfig};
use crate::text::say;

/// How often a cluster is looked at at most.
const FOLLOWING: Duration = Duration::from_secs(1);
/// Refresh interval for an operator.
const OBSERVING: Duration = Duration::from_millis(300);
/// How often it is asked whether the operator of a cluster has other settings by now.
const ASKING: Duration = Duration::from_secs(60);
/// How long that may take.
const ANSWER: Duration = Duration::from_secs(10);

/// How a world is made of what was read, which is work for a thread of its own, and the settings to decide under.
pub(crate) type Making = Box<dyn FnOnce() -> (World, Policy) + Send>;

/// A source of worlds.
pub(crate) enum Source {
    /// Read once, and the settings to decide with.
    Still(Box<World>, Box<InForce>),
    /// Listed when it is read, or followed.
    Listed(Box<Listed>),
    /// The operator in this process, and what was seen last.
    Operator(Observer, Option<Seen>),
}

/// A cluster of which objects are read.
pub(crate) struct Listed {
    cluster: Cluster,
    reading: Arc<Reading>,
    /// What the command was given, where the settings of the cluster's operator are asked for.
    own: Option<Own>,
    /// Its lists, where they are followed, and the version that was read last.
    followed: Option<(Followed, Option<u64>)>,
}

/// What objects of a cluster do not say.
struct Reading {
    catalog: Arc<Catalog>,
    ec2: Option<Ec2>,
    profiles: Arc<SchedulerProfiles>,
    in_force: InForce,
}

/// What a command was given, over which nothing that its operator has wins.
struct Own {
    args: SourceArgs,
    catalog: Arc<Catalog>,
    ec2: Option<Ec2>,
    scheduler: Arc<SchedulerConfig>,
    /// When the settings of the operator were asked for last.
    asked_at: Instant,
}

impl Source {
    /// A dump, or the cluster of a kubeconfig.
    ///
    /// # Errors
    /// The dump or the catalog cannot be read, or the cluster does not answer.
    pub(crate) async fn of(args: &SourceArgs) -> Result<Self> {
        if !args.filenames.is_empty() {
            let loaded = plan::load(args).await?;
            let beside = loaded.written.into_iter().map(|written| written.object).collect();
            let missing = kinds::missing(&loaded.world.left_out);
            let world = world(loaded.world.state, Beside::of(beside), loaded.now, missing);
            return Ok(Source::Still(Box::new(world), Box::new(loaded.in_force)));
        }
        // What is wrong with the command line is said before anything is read.
        args.settings.check()?;
        let ec2 = Ec2::unless(args.catalog.as_deref(), args.region.as_deref())?;
        let scheduler = scheduler_config::read(args.scheduler_config.as_deref())?;
        let cluster = Cluster::reach(&args.cluster).await?;
        let catalog = match &args.catalog {
            Some(path) => Catalog::from_file(path)?,
            None => Catalog::default(),
        };
        let in_force = InForce::of_cluster(&cluster.client, args).await?;
        let own = Own {
            args: args.clone(),
            catalog: Arc::new(catalog),
            ec2,
            scheduler: Arc::new(scheduler),
            asked_at: Instant::now(),
        };
        let scheduler = in_force.scheduler_under(args, Arc::clone(&own.scheduler));
        for note in in_force.notes().into_iter().chain(scheduler.notes()) {
            say(&format!("note: {note}"));
        }
        Ok(Source::Listed(Box::new(Listed {
            cluster,
            reading: Arc::new(own.under(in_force)),
            own: Some(own),
            followed: None,
        })))
    }

    /// A cluster that has answered already.
    pub(crate) fn listing(
        cluster: Cluster,
        catalog: Catalog,
        ec2: Option<Ec2>,
        profiles: Arc<SchedulerProfiles>,
    ) -> Self {
        let reading = Reading {
            catalog: Arc::new(catalog),
            ec2,
            profiles,
            in_force: InForce::default(),
        };
        Source::Listed(Box::new(Listed {
            cluster,
            reading: Arc::new(reading),
            own: None,
            followed: None,
        }))
    }

    /// From now on it is read again and again: a cluster is watched instead of listed each time.
    pub(crate) fn follow(&mut self) {
        if let Source::Listed(listed) = self {
            listed.follow();
        }
    }

    /// By which settings it is decided, where there is something to be said of them. An operator in this process has its own.
    pub(crate) fn settings(&self) -> Option<SettingsInForce> {
        match self {
            Source::Still(_, in_force) => in_force.told.clone(),
            Source::Listed(listed) => listed.reading.in_force.told.clone(),
            Source::Operator(..) => None,
        }
    }

    /// Description of the source.
    pub(crate) fn title(&self, args: &SourceArgs) -> String {
        match self {
            Source::Still(world, _) => {
                let name = |path: &std::path::PathBuf| match path.file_name() {
                    Some(name) => name.to_string_lossy().into_owned(),
                    None => path.display().to_string(),
                };
                let files: Vec<String> = args.filenames.iter().map(name).collect();
                format!("{} at {}", files.join(", "), world.now.strftime("%Y-%m-%d %H:%M"))
            }
            Source::Listed(listed) => listed.cluster.server.clone(),
            Source::Operator(..) => "this operator".to_owned(),
        }
    }

    /// Reads what a world is made of; none while there is nothing to see. Nobody waits long for a cluster that is followed.
    ///
    /// # Errors
    /// The cluster does not answer, or refuses Nodes or Pods.
    pub(crate) async fn read(&mut self) -> Result<Option<Making>> {
        match self {
            Source::Still(world, in_force) => {
                let (world, policy) = (World::clone(world), in_force.policy());
                let making: Making = Box::new(move || (world, policy));
                Ok(Some(making))
            }
            Source::Listed(listed) => listed.read().await.map(Some),
            Source::Operator(observer, seen) => {
                let Some(observed) = observer.observe().await else {
                    return Ok(None);
                };
                *seen = Some(observed.seen);
                let world = World {
                    state: observed.state,
                    attachments: observed.attachments,
                    disruptions: observed.disruptions,
                    missing: kinds::unreadable(observed.unreadable),
                    is_of_operator: true,
                    now: observed.now,
                };
                let making: Making = Box::new(move || (world, observed.policy));
                Ok(Some(making))
            }
        }
    }

    /// Whether reading again may show something else.
    pub(crate) async fn has_changed(&self) -> bool {
        match self {
            Source::Still(..) => false,
            Source::Listed(listed) => match &listed.followed {
                Some((followed, seen)) => *seen != Some(followed.version()),
                None => true,
            },
            Source::Operator(observer, Some(seen)) => !observer.is_same(seen).await,
            Source::Operator(_, None) => true,
        }
    }

    /// It never changes.
    pub(crate) fn is_still(&self) -> bool {
        matches!(self, Source::Still(..))
    }

    /// The shortest pause between two looks.
    pub(crate) fn pace(&self) -> Duration {
        match self {
            Source::Operator(..) => OBSERVING,
            _ => FOLLOWING,
        }
    }
}

impl Own {
    /// How a cluster is read whose operator has these settings.
    fn under(&self, in_force: InForce) -> Reading {
        let scheduler = in_force.scheduler_under(&self.args, Arc::clone(&self.scheduler));
        Reading {
            catalog: in_force.catalog_under(&self.args, Arc::clone(&self.catalog)),
            ec2: self.ec2.clone().map(|ec2| ec2.under(in_force.aws)),
            profiles: Arc::clone(&scheduler.profiles),
            in_force,
        }
    }
}

impl Listed {
    fn follow(&mut self) {
        let followed = Followed::new(self.cluster.client.clone(), self.reading.has_spread());
        self.followed = Some((followed, None));
    }

    /// Asks from time to time whether the operator has other settings by now. While the cluster does not answer, those of before hold.
    async fn ask_for_settings(&mut self) -> Result<()> {
        let due = self.own.as_mut().filter(|own| own.asked_at.elapsed() >= ASKING);
        let Some(own) = due else { return Ok(()) };
        own.asked_at = Instant::now();
        let before = &self.reading.in_force;
        let asked = before.of_cluster_again(&self.cluster.client, &own.args);
        let Ok(later) = tokio::time::timeout(ANSWER, asked).await else {
            return Ok(());
        };
        let had_spread = self.reading.has_spread();
        self.reading = Arc::new(own.under(later?));
        // Spread depends on further lists.
        if self.followed.is_some() && self.reading.has_spread() != had_spread {
            self.follow();
        }
        Ok(())
    }

    async fn read(&mut self) -> Result<Making> {
        let now = self.cluster.ask_again().await?;
        self.ask_for_settings().await?;
        let (dump, beside, missing) = match &mut self.followed {
            Some((followed, seen)) => {
                let version = followed.version();
                let copies = followed.read().await?;
                *seen = Some(version);
                let beside = Beside {
                    attachments: copies.attachments,
                    disruptions: copies.disruptions,
                };
                (copies.dump, beside, copies.missing)
            }
            None => {
                let client = &self.cluster.client;
                let (mut dump, refused) =
                    live::read_what_may_be_seen(client, self.reading.has_spread()).await?;
                dump.written.retain(plan::Written::is_node_pool);
                let (objects, unlisted) = beside_in_cluster(client).await;
                let commands = objects.iter().filter(|one| one["kind"] == "Disruption").count();
                let beside = Beside::of(objects);
                let missing = refused
                    .into_iter()
                    .map(|(resource, message)| Missing { resource, message });
                let mut missing: Vec<Missing> = missing.collect();
                // Without the ledger nobody knows what has become of commands, also where no decision reads it. Where one does, it is among these already.
                let unread = || "not all of them can be read".to_owned();
                let unknown = unlisted.or_else(|| (beside.disruptions.len() < commands).then(unread));
                let resource = live::resource(live::LEDGER);
                let is_told = missing.iter().any(|one| one.resource == resource)
                    || dump.unreadable.iter().any(|one| one.kind == "Disruption");
                if let Some(message) = unknown.filter(|_| !is_told) {
                    missing.push(Missing { resource, message });
                }
                (dump, beside, missing)
            }
        };
        let reading = Arc::clone(&self.reading);
        Ok(Box::new(move || {
            let policy = reading.in_force.policy();
            (reading.world(dump, beside, now, missing), policy)
        }))
    }
}

impl Reading {
    /// Whether pods may get default topology spread.
    fn has_spread(&self) -> bool {
        self.profiles.have_default_constraints()
    }

    fn world(
        &self,
        mut dump: Dump,
        beside: Beside,
        now: jiff::Timestamp,
        mut missing: Vec<Missing>,
    ) -> World {
        let types = self.catalog.instance_types();
        let gates = self.in_force.gates;
        gates.leave_out(&mut dump);
        let ec2 = self.ec2.as_ref();
        let profiles = Arc::clone(&self.profiles);
        let mut read = Read::new(dump, Origin::Cluster, types, ec2, profiles, now);
        gates.apply(&mut read.state, now);
        missing.extend(kinds::missing(&read.left_out));
        world(read.state, beside, now, missing)
    }
}

/// What decisions do not read.
#[derive(Default)]
struct Beside {
    attachments: Vec<Arc<VolumeAttachment>>,
    disruptions: Vec<Arc<Disruption>>,
}

impl Beside {
    fn of(objects: Vec<Value>) -> Self {
        let mut beside = Beside::default();
        for object in objects {
            match object["kind"].as_str() {
                Some("VolumeAttachment") => {
                    let read = read_beside::<VolumeAttachment>(&object, "shown");
                    beside.attachments.extend(read);
                }
                Some("Disruption") => {
                    let read = read_beside::<Disruption>(&object, "shown");
                    beside.disruptions.extend(read);
                }
                _ => {}
            }
        }
        beside
    }
}

/// With what decisions do not read, and with the nodes of commands under way marked as the controllers mark them.
fn world(state: ClusterState, beside: Beside, now: jiff::Timestamp, missing: Vec<Missing>) -> World {
    let mut world = World {
        state,
        attachments: beside.attachments,
        disruptions: beside.disruptions,
        missing,
        is_of_operator: false,
        now,
    };
    mark_held(&mut world.state, &world.disruptions);
    world
}
