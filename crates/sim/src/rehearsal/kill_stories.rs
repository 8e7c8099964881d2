//! What happens in the stories of `kills`: an interruption on each cloud; on EC2 another image, another role, a capacity reservation that is lost, a zonal shift, a machine
//! that somebody ends by hand.

use std::collections::BTreeSet;

use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Event;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use spokeshave_api::{NodeClaim, labels};
use spokeshave_ec2_simulated::SimulatedEc2;
use spokeshave_provider_aws::replies::CapacityReservation;
use spokeshave_runtime::Api;

use super::kills::Teller;
use super::steps::failed;
use super::{CloudName, World};

/// A capacity reservation.
const RESERVATION: &str = "cr-0123456789abcdef0";

/// What happens, once the pods run.
type Act = for<'a> fn(&'a mut Teller) -> LocalBoxFuture<'a, Result<(), String>>;

/// A story on a cloud.
#[derive(Clone, Copy, Debug)]
pub struct CloudStory {
    /// Its name, in a word that tests and commands use; it begins with the cloud's.
    pub name: &'static str,
    /// Fewest calls that make it worth telling.
    pub least_calls: u64,
    pub(super) cloud: CloudName,
    /// What the cloud has before the operator starts.
    pub(super) prepare: fn(&World) -> Result<(), String>,
    /// What the class has besides, as a merge patch.
    pub(super) class: fn() -> Value,
    /// What is different about the pool.
    pub(super) pool: fn(&mut Value),
    pub(super) act: Act,
}

const INTERRUPTION: CloudStory = CloudStory {
    name: "ec2",
    least_calls: 60,
    cloud: CloudName::Aws,
    prepare: |_| Ok(()),
    class: || Value::Null,
    pool: |_| {},
    act: |teller| interruption(teller).boxed_local(),
};

/// All stories.
#[must_use]
pub fn cloud_stories() -> [CloudStory; 8] {
    [
        INTERRUPTION,
        CloudStory {
            name: "ec2-image",
            act: |teller| another_image(teller).boxed_local(),
            ..INTERRUPTION
        },
        CloudStory {
            name: "ec2-role",
            act: |teller| another_role(teller).boxed_local(),
            ..INTERRUPTION
        },
        CloudStory {
            name: "ec2-reservation",
            prepare: |world| ec2(world).map(|ec2| ec2.reserve(reservation())),
            class: || json!({"spec": {"capacityReservationSelectorTerms": [{"id": RESERVATION}]}}),
            pool: |pool| {
                let requirements = pool.pointer_mut("/spec/template/spec/requirements");
                let wanted = json!([
                    {"key": labels::INSTANCE_TYPE, "operator": "In", "values": ["m5.2xlarge"]},
                    {"key": labels::CAPACITY_TYPE, "operator": "In", "values": ["reserved", "on-demand"]},
                ]);
                requirements.map(|it| *it = wanted).unwrap_or_default();
            },
            act: |teller| lost_reservation(teller).boxed_local(),
            ..INTERRUPTION
        },
        CloudStory {
            name: "ec2-zonal-shift",
            act: |teller| zonal_shift(teller).boxed_local(),
            ..INTERRUPTION
        },
        CloudStory {
            name: "ec2-by-hand",
            act: |teller| ended_by_hand(teller).boxed_local(),
            ..INTERRUPTION
        },
        CloudStory {
            name: "azure",
            cloud: CloudName::Azure,
            ..INTERRUPTION
        },
        CloudStory {
            name: "azure-machines",
            cloud: CloudName::AzureMachines,
            ..INTERRUPTION
        },
    ]
}

fn ec2(world: &World) -> Result<SimulatedEc2, String> {
    world.cloud.ec2().ok_or_else(|| failed("this is a story of EC2"))
}

/// A spot machine is taken back.
async fn interruption(teller: &mut Teller) -> Result<(), String> {
    let world = &teller.world;
    let spot = world.cloud.machines().into_iter().find(|one| one.is_spot);
    if let Some(machine) = spot {
        world.cloud.interrupt(&world.lab, &machine.id).await?;
    }
    teller.rest().await
}

async fn claim_names(world: &World) -> BTreeSet<String> {
    let claims = world.lab.list::<NodeClaim>().await;
    claims.iter().map(|claim| claim.name().to_owned()).collect()
}

/// AWS publishes another image: every machine is replaced by one that was started from it.
async fn another_image(teller: &mut Teller) -> Result<(), String> {
    let cloud = ec2(&teller.world)?;
    let images = || -> BTreeSet<String> {
        let instances = cloud.instances().into_iter();
        instances.map(|instance| instance.image_id).collect()
    };
    let before = images();
    cloud.release_images();
    teller
        .rest_when(async |_| {
            let old = images().intersection(&before).cloned().collect::<Vec<_>>();
            old.into_iter()
                .map(|image| format!("a machine still has image {image}"))
                .collect()
        })
        .await
}

/// The class gets another role, and with it another instance profile: every machine is replaced, and the profiles are those of the roles in use.
async fn another_role(teller: &mut Teller) -> Result<(), String> {
    let cloud = ec2(&teller.world)?;
    let (claims, profiles) = (claim_names(&teller.world).await, cloud.profiles());
    let role = json!({"spec": {"role": "AnotherNodeRole"}});
    teller.world.change_class(role).await?;
    teller
        .rest_when(async |world| {
            let left = claim_names(world).await;
            let mut missing: Vec<String> = left
                .intersection(&claims)
                .map(|name| format!("NodeClaim {name} has the old role"))
                .collect();
            if cloud.profiles() == profiles {
                missing.push("there is no instance profile of the new role".to_owned());
            }
            missing
        })
        .await
}

/// Somebody ends a machine in the console, once with the queue and once without: its NodeClaim and Node go, an event says why, its pods run elsewhere, and the
/// other machines stay.
async fn ended_by_hand(teller: &mut Teller) -> Result<(), String> {
    let cloud = ec2(&teller.world)?;
    for queue in [Some(super::CLUSTER), None] {
        cloud.set_queue(queue);
        let claims = teller.world.lab.list::<NodeClaim>().await;
        let Some((claim, id)) = claims.first().and_then(|claim| {
            let (_, id) = claim.provider_id()?.rsplit_once('/')?;
            Some((claim.name().to_owned(), id.to_owned()))
        }) else {
            return Err(failed("there is no machine"));
        };
        let others: BTreeSet<String> = claims.iter().skip(1).map(|one| one.name().to_owned()).collect();
        if !cloud.terminate(&id) {
            return Err(failed("the machine does not end"));
        }
        teller
            .rest_when(async |world| {
                let left = claim_names(world).await;
                let is_there = left
                    .contains(&claim)
                    .then(|| format!("NodeClaim {claim} is there, whose machine is not"));
                let gone = others
                    .difference(&left)
                    .map(|name| format!("NodeClaim {name} is gone, whose machine runs"));
                is_there.into_iter().chain(gone).collect()
            })
            .await?;
        // An operator that dies takes the events along that it has not written.
        if queue.is_some() && teller.life.is_some() {
            let events = teller.world.lab.list::<Event>().await;
            let about = |event: &&Event| event.involved_object.name.as_deref() == Some(claim.as_str());
            let reasons: BTreeSet<String> = events
                .iter()
                .filter(about)
                .filter_map(|event| event.reason.clone())
                .collect();
            if !reasons.contains("InstanceTerminating") || !reasons.contains("TerminatingOnInterruption") {
                return Err(format!(
                    "no event says that the machine of NodeClaim {claim} has ended: {reasons:?}"
                ));
            }
        }
    }
    cloud.set_queue(Some(super::CLUSTER));
    Ok(())
}

fn reservation() -> CapacityReservation {
    CapacityReservation {
        id: RESERVATION.to_owned(),
        owner_id: "123456789012".to_owned(),
        instance_type: "m5.2xlarge".to_owned(),
        zone: "us-east-1a".to_owned(),
        zone_id: "use1-az1".to_owned(),
        state: "active".to_owned(),
        instance_match_criteria: "targeted".to_owned(),
        reservation_type: "default".to_owned(),
        total: 2,
        available: 2,
        ..CapacityReservation::default()
    }
}

/// Two of three machines run in the reservation; one loses it and counts as on-demand from then on.
async fn lost_reservation(teller: &mut Teller) -> Result<(), String> {
    let cloud = ec2(&teller.world)?;
    let instances = cloud.instances().into_iter();
    let reserved: Vec<String> = instances
        .filter(|instance| instance.capacity_reservation_id.is_some())
        .map(|instance| instance.id)
        .collect();
    if reserved.is_empty() {
        return Err(failed("nothing runs in the reservation"));
    }
    cloud.lose_reservation(&reserved[0]);
    teller
        .rest_when(async |world| {
            let mut missing = Vec::new();
            for claim in world.lab.list::<NodeClaim>().await {
                let id = claim.provider_id().unwrap_or_default();
                let instance = cloud.instances().into_iter().find(|one| id.ends_with(&one.id));
                let has_it = instance.is_some_and(|one| one.capacity_reservation_id.is_some());
                let says_so = claim.label(labels::CAPACITY_TYPE) == Some("reserved");
                if has_it != says_so {
                    missing.push(format!(
                        "NodeClaim {} is labelled reserved: {says_so}, its instance is: {has_it}",
                        claim.name()
                    ));
                }
            }
            missing
        })
        .await
}

/// A zone is shifted away from: pods that come are placed elsewhere, what is deleted there stays until the shift is over.
async fn zonal_shift(teller: &mut Teller) -> Result<(), String> {
    let cloud = ec2(&teller.world)?;
    let Some(there) = cloud.instances().into_iter().next() else {
        return Err(failed("there is no machine"));
    };
    cloud.set_shifted(&there.zone, true);
    teller.pass(180).await;
    let in_zone = || -> BTreeSet<String> {
        let instances = cloud.instances().into_iter();
        let there = instances.filter(|one| one.zone == there.zone);
        there.map(|one| one.id).collect()
    };
    let before = in_zone();
    let deployments: Api<Deployment> = Api::namespaced(teller.world.lab.client.clone(), "default");
    teller.pods += 2;
    let patch = json!({"spec": {"replicas": teller.pods}});
    let scaled = teller.world.lab.merge::<Deployment>(&deployments, "w", patch);
    scaled.await.map_err(failed)?;
    teller.rest().await?;
    let launched: Vec<String> = in_zone().difference(&before).cloned().collect();
    if !launched.is_empty() {
        return Err(format!(
            "launched in {}, from which traffic is shifted away: {}",
            there.zone,
            launched.join(", ")
        ));
    }
    let claims = teller.world.lab.list::<NodeClaim>().await;
    let of_it = |claim: &&NodeClaim| claim.provider_id().is_some_and(|id| id.ends_with(&there.id));
    if let Some(claim) = claims.iter().find(of_it) {
        let api: Api<NodeClaim> = Api::all(teller.world.lab.client.clone());
        let deleted = api.delete(claim.name(), &DeleteParams::default()).await;
        deleted.map_err(failed)?;
        teller.pass(180).await;
        if !in_zone().contains(&there.id) {
            return Err(format!(
                "{} has ended while its zone is shifted away from",
                there.id
            ));
        }
    }
    cloud.set_shifted(&there.zone, false);
    teller
        .rest_when(async |_| {
            let is_there = in_zone().contains(&there.id) && !claims.is_empty();
            is_there
                .then(|| format!("{} runs, and its NodeClaim was deleted", there.id))
                .into_iter()
                .collect()
        })
        .await
}
