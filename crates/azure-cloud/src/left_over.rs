//! Machines that Azure is still making, machines that have failed, and what is left over (Z-033, Z-051).
//!
//! Owns when an operation is looked at again and what a sweep removes. Whatever it removes by a name it looks up once more while no launch holds that name:
//! AKS gives the next machine of a NodeClaim the same one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use spokeshave_model::interruption::InterruptionKind;
use spokeshave_ports::{CloudError, Interruption};
use spokeshave_provider_azure::errors::{ArmError, Attempt, launch_failure};
use spokeshave_provider_azure::tags;

use crate::client::Progress;
use crate::described::{Interface, Machine};
use crate::machines::created_at;
use crate::provider::{Inner, Pending};

/// Operations are looked at this often, those that are due.
const OPERATIONS_PERIOD: Duration = Duration::from_secs(1);
/// An operation that could not be read is looked at again after this, and then after twice as long each time.
const FIRST_RETRY: SignedDuration = SignedDuration::from_secs(5);
/// Longest pause between two such looks.
const LONGEST_RETRY: SignedDuration = SignedDuration::from_mins(1);
/// An operation is looked at for so long (Z6.4); after that the machine itself shows what became of it.
const LONGEST_OPERATION: SignedDuration = SignedDuration::from_mins(15);
/// What is left over is looked for this often (Z7).
const SWEEP_PERIOD: Duration = Duration::from_secs(5 * 60);
/// A NodeClaim whose Node has not joined within this is deleted by core: an older machine is taken to be in use unless the cluster shows that it is not.
const REGISTRATION: SignedDuration = SignedDuration::from_mins(15);
/// A network interface without machine is left over when it is older.
const INTERFACE_AGE: SignedDuration = SignedDuration::from_mins(5);
/// Azure keeps a network interface so long for a machine that was refused.
const INTERFACE_HELD: SignedDuration = SignedDuration::from_secs(180);

/// What one sweep leaves to the next.
#[derive(Debug, Default)]
struct Memory {
    /// Network interfaces that Azure keeps, until when.
    held: BTreeMap<String, Timestamp>,
    /// Machines in use whose failure has been logged.
    spared: BTreeSet<String>,
}

fn retry_after(unread: u32) -> SignedDuration {
    FIRST_RETRY
        .saturating_mul(1 << unread.saturating_sub(1).min(4))
        .min(LONGEST_RETRY)
}

fn later(now: Timestamp, wait: SignedDuration) -> Timestamp {
    now.saturating_add(wait).unwrap_or(Timestamp::MAX)
}

/// Why it has failed, for the log.
fn reason(machine: &Machine) -> String {
    let error = machine.aks.as_ref().and_then(|aks| aks.error.as_ref());
    error.map_or_else(|| "Azure does not say why".to_owned(), ToString::to_string)
}

/// What it is known by where launches are kept apart.
fn slot_name(machine: &Machine) -> &str {
    machine.aks.as_ref().map_or(&machine.name, |aks| &aks.name)
}

/// Both are the same machine, and not one that was made later under its name.
fn is_same(a: &Machine, b: &Machine) -> bool {
    let made = (a.properties.time_created, b.properties.time_created);
    a.name == b.name && !matches!(made, (Some(a), Some(b)) if a != b)
}

/// AKS has not said for so long which virtual machine it is that no launch waits for it any more.
fn is_abandoned(machine: &Machine, now: Timestamp) -> bool {
    let is_old = |at: Timestamp| now.duration_since(at) >= REGISTRATION;
    machine.name.is_empty() && created_at(machine).is_some_and(is_old)
}

impl Inner {
    pub(crate) async fn follow_operations(&self) {
        loop {
            for pending in self.pending() {
                if pending.operation.next <= self.clock().now() {
                    self.look_at(pending).await;
                }
            }
            self.clock().sleep(OPERATIONS_PERIOD).await;
        }
    }

    async fn look_at(&self, mut pending: Pending) {
        match self.client.progress(&self.options, &pending.operation).await {
            Ok(Progress::Running(next)) => {
                pending.operation = next;
                pending.unread = 0;
                self.look_later(pending, "it still goes on");
            }
            Ok(Progress::Done) => self.over(&pending),
            Ok(Progress::Failed(error)) => self.failed(pending, &error).await,
            // ARM forgets operations after a day; the machine itself says what became of it (`sweep`).
            Err(error) if error.is_not_found() => self.over(&pending),
            Err(error) => self.unread(pending, &error),
        }
    }

    /// The operation is over; that of a later machine of the same name is not.
    fn over(&self, pending: &Pending) {
        if self.is_pending(pending) {
            self.forget_pending(&pending.machine);
        }
    }

    fn unread(&self, mut pending: Pending, error: &ArmError) {
        pending.unread += 1;
        if pending.unread == 1 {
            tracing::warn!(machine = pending.machine, %error, "the operation that makes a machine cannot be read; retrying");
        }
        pending.operation.next = later(self.clock().now(), retry_after(pending.unread));
        self.look_later(pending, &error.to_string());
    }

    fn look_later(&self, pending: Pending, state: &str) {
        if self.clock().now().duration_since(pending.since) < LONGEST_OPERATION {
            self.look_again(pending);
            return;
        }
        tracing::warn!(
            machine = pending.machine,
            state,
            "the operation that makes a machine is not looked at any more after 15 minutes"
        );
        self.over(&pending);
    }

    /// A machine that was accepted could not be made: it ends, and its NodeClaim with it (Z-033).
    async fn failed(&self, mut pending: Pending, error: &ArmError) {
        let at_aks = self.aks_name(&pending.machine);
        let slot = self.slot(at_aks.as_ref().map_or(&pending.machine, |(_, name)| *name));
        let Ok(_held) = slot.try_lock() else {
            // A launch of the same name finds the machine itself and decides about it.
            pending.operation.next = later(self.clock().now(), FIRST_RETRY);
            self.look_later(pending, "a launch holds its name");
            return;
        };
        if !self.is_pending(&pending) {
            return;
        }
        // AKS says in the machine what Compute has said, and in the operation that something has gone wrong.
        let found = match at_aks {
            Some((pool, name)) => match self.calls().aks_machine(&pool, name).await {
                Ok(found) => Some(found.filter(|machine| machine.name == pending.machine)),
                Err(error) => return self.unread(pending, &error),
            },
            None => None,
        };
        self.over(&pending);
        let said = found
            .as_ref()
            .and_then(|found| found.as_ref()?.aks.as_ref()?.error.as_ref());
        let error = said.unwrap_or(error);
        let cpus = pending.instance_type.capacity.get("cpu") / 1000;
        let attempt = Attempt {
            instance_type: &pending.instance_type,
            family: &pending.family,
            cpus,
            zone: &pending.zone,
            capacity_type: pending.capacity_type,
        };
        if let Some(failure) = launch_failure(error, &attempt) {
            self.market.mark(&failure.marks, self.clock().now());
        }
        tracing::warn!(machine = pending.machine, %error, "a machine could not be made");
        match found {
            Some(Some(machine)) => self.clean(&machine).await,
            // It is gone, and another may have its name.
            Some(None) => {}
            None => self.clean_vm(&pending.machine).await,
        }
        self.tell_of_end(&pending.machine);
    }

    fn tell_of_end(&self, machine: &str) {
        self.messages.tell(Interruption {
            id: format!("failed/{machine}"),
            provider_id: self.provider_id(machine),
            kind: Ok(InterruptionKind::InstanceTerminated),
            sent_at: Some(self.clock().now()),
            ends_at: None,
        });
    }

    pub(crate) async fn sweep(&self) {
        let mut memory = Memory::default();
        loop {
            self.clock().sleep(SWEEP_PERIOD).await;
            if let Err(error) = self.sweep_once(&mut memory).await {
                tracing::warn!(%error, "looking for what is left over");
            }
        }
    }

    /// Ends machines that have failed while nobody looked, and removes network interfaces without machine (Z-051).
    async fn sweep_once(&self, memory: &mut Memory) -> Result<(), CloudError> {
        let machines = self.machines().await?;
        let now = self.clock().now();
        // Whose operation cannot be read shows only itself what became of it.
        let followed: BTreeSet<String> = self
            .pending()
            .into_iter()
            .filter(|pending| pending.unread == 0)
            .map(|pending| pending.machine)
            .collect();
        for machine in &machines {
            if machine.is_hollow() {
                self.clean_listed(machine, "its virtual machine is gone").await;
            } else if is_abandoned(machine, now) {
                self.clean_listed(machine, "AKS has not named its virtual machine in 15 minutes")
                    .await;
            } else if machine.has_failed() && !followed.contains(&machine.name) {
                self.sweep_failed(machine, memory, now).await;
            }
        }
        memory
            .spared
            .retain(|key| machines.iter().any(|machine| machine.key() == key));
        self.sweep_interfaces(memory, now).await
    }

    /// Whether its Node has joined; `None` where the objects of the cluster are not known.
    fn has_joined(&self, machine: &Machine) -> Option<bool> {
        let nodes = self.objects.as_ref()?.nodes.all()?;
        let id = self.options.place.provider_id(&machine.name);
        let is_its = |provider_id: &str| provider_id.eq_ignore_ascii_case(&id);
        Some(nodes.iter().any(|node| {
            let spec = node.spec.as_ref();
            spec.and_then(|spec| spec.provider_id.as_deref())
                .is_some_and(is_its)
        }))
    }

    /// An update that fails makes a machine "Failed" as well, and its pods run on: only one that was never in use ends here.
    async fn sweep_failed(&self, machine: &Machine, memory: &mut Memory, now: Timestamp) {
        let is_young = |at: Timestamp| now.duration_since(at) < REGISTRATION;
        let in_use = match self.has_joined(machine) {
            Some(has_joined) => has_joined,
            None => !created_at(machine).is_some_and(is_young),
        };
        let reason = reason(machine);
        if in_use && !machine.name.is_empty() {
            if memory.spared.insert(machine.key().to_owned()) {
                tracing::warn!(
                    machine = machine.name,
                    reason,
                    "Azure calls a machine in use failed; it is left as it is"
                );
            }
            return;
        }
        if !self.clean_listed(machine, &reason).await {
            return;
        }
        if let Some(class) = machine.tag(tags::NODE_CLASS).and_then(|name| self.class(name)) {
            self.left_out_by(machine, &class);
        }
        // Without the name of its virtual machine no NodeClaim knows it.
        if !machine.name.is_empty() {
            self.tell_of_end(&machine.name);
        }
    }

    /// Removes a machine of a list if it is still there and still of no use: whether it did.
    async fn clean_listed(&self, listed: &Machine, reason: &str) -> bool {
        let slot = self.slot(slot_name(listed));
        let Ok(_held) = slot.try_lock() else {
            // A launch of the same name decides about it.
            return false;
        };
        let found = match self.at_aks(listed) {
            Some((pool, name)) => self.find_aks(&pool, name).await,
            None => self.find(&listed.name).await,
        };
        let machine = match found {
            Ok(Some(machine)) if is_same(&machine, listed) => machine,
            Ok(_) => return false,
            Err(error) => {
                tracing::warn!(machine = listed.key(), %error, "looking up a machine that is left over");
                return false;
            }
        };
        let is_useless = machine.is_hollow() || machine.has_failed() || machine.name.is_empty();
        if machine.is_deleting() || !is_useless {
            return false;
        }
        tracing::warn!(machine = listed.key(), reason, "removing a machine of no use");
        self.forget_pending(&listed.name);
        self.clean(&machine).await;
        true
    }

    fn is_left_over(&self, interface: &Interface, now: Timestamp) -> bool {
        let tag = |key: &str| interface.tags.as_ref()?.get(key);
        let made: Option<Timestamp> = tag(tags::CREATED_AT).and_then(|text| text.parse().ok());
        let old = made.is_some_and(|made| now.duration_since(made) >= INTERFACE_AGE);
        let ours = tag(tags::CLUSTER).is_some_and(|cluster| *cluster == self.options.cluster_name)
            // AKS tags the interfaces that it makes as it was asked to tag the machine, and removes them itself.
            && tag(tags::AKS_MACHINE).is_none();
        ours && old && interface.properties.virtual_machine.is_none()
    }

    async fn sweep_interfaces(&self, memory: &mut Memory, now: Timestamp) -> Result<(), CloudError> {
        let interfaces = self.calls().interfaces().await;
        let interfaces =
            interfaces.map_err(|error| CloudError::Other(format!("listing network interfaces: {error}")))?;
        memory.held.retain(|_, until| now < *until);
        for interface in interfaces {
            if !self.is_left_over(&interface, now) || memory.held.contains_key(&interface.name) {
                continue;
            }
            // The list may be late: only ARM knows that there is no machine.
            let slot = self.slot(&interface.name);
            let _held = slot.lock().await;
            if self.find(&interface.name).await?.is_some() {
                continue;
            }
            match self.calls().delete_interface(&interface.name).await {
                Ok(()) => tracing::info!(
                    interface = interface.name,
                    "removed a network interface without machine"
                ),
                Err(error) if error.is_interface_reserved() => {
                    memory.held.insert(interface.name, later(now, INTERFACE_HELD));
                }
                Err(error) => {
                    tracing::warn!(interface = interface.name, %error, "removing a network interface")
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn z_035_an_operation_that_cannot_be_read_is_asked_about_less_and_less_often() {
        let waits: Vec<i64> = (1..=7).map(|unread| retry_after(unread).as_secs()).collect();
        assert_eq!(waits, [5, 10, 20, 40, 60, 60, 60]);
        assert_eq!(retry_after(u32::MAX), LONGEST_RETRY);
    }
}
