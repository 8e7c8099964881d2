//! The front: who asks for what.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::{Value, json};
use spokeshave_azure_cloud::{Assertion, Http, Request, Response};
use spokeshave_ports::SharedClock;

use crate::machine_facts::{self, Machine};
use crate::options::{Options, Refusal};
use crate::replies::{not_found, ok, page, refused, throttled, with};
use crate::state::{INTERFACES, MACHINES, Resource, State, later};

/// Versions of the API of galleries, which are not those of machines.
const GALLERY_VERSIONS: [&str; 3] = ["2023-07-03", "2024-03-03", "2025-03-03"];

/// An Azure. Clones are the same.
#[derive(Clone)]
pub struct Azure {
    state: Arc<Mutex<State>>,
    clock: SharedClock,
}

impl fmt::Debug for Azure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Azure").finish_non_exhaustive()
    }
}

impl Http for Azure {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, String>> {
        std::future::ready(self.answer(&request)).boxed()
    }
}

impl Assertion for Azure {
    fn token(&self) -> Result<String, String> {
        Ok(self.state().options.assertion.clone())
    }
}

/// A path, and what stands in its query.
struct Target {
    path: String,
    parts: Vec<String>,
    query: String,
}

impl Target {
    /// `None` for what is no URL of this Azure.
    fn of(url: &str) -> Option<Self> {
        let (_, rest) = url.split_once("://")?;
        let path_and_query = &rest[rest.find('/')?..];
        let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
        Some(Target {
            path: path.to_owned(),
            parts: path.split('/').skip(1).map(str::to_lowercase).collect(),
            query: query.to_owned(),
        })
    }

    fn version(&self) -> Option<&str> {
        let mut pairs = self.query.split('&');
        pairs.find_map(|pair| pair.strip_prefix("api-version="))
    }

    fn parts(&self) -> Vec<&str> {
        self.parts.iter().map(String::as_str).collect()
    }
}

impl Azure {
    /// An Azure on this clock.
    #[must_use]
    pub fn new(options: Options, clock: SharedClock) -> Self {
        Azure {
            state: Arc::new(Mutex::new(State::new(options))),
            clock,
        }
    }

    pub(crate) fn clock(&self) -> SharedClock {
        self.clock.clone()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Machines like these cannot be made from now on.
    pub fn refuse(&self, refusal: Refusal) {
        self.state().refusals.push(refusal);
    }

    /// All machines can be made again.
    pub fn refuse_nothing(&self) {
        self.state().refusals.clear();
    }

    /// An action that is denied, such as `PUT microsoft.compute/virtualmachines`.
    pub fn deny(&self, action: &str) {
        self.state().denied.insert(action.to_owned());
    }

    /// The next requests are told to wait for so many seconds.
    pub fn throttle(&self, requests: u32, seconds: u32) {
        self.state().throttled = (requests, seconds);
    }

    /// All writes that are not deletions are told to wait until so many seconds from now are over.
    pub fn throttle_writes(&self, seconds: i64) {
        let until = later(self.clock.now(), jiff::SignedDuration::from_secs(seconds));
        self.state().no_writes_before = Some(until);
    }

    /// The next requests whose line in the [`log`](Self::log) begins so are done, and their replies are lost.
    pub fn lose_replies(&self, start: &str, requests: u32) {
        self.state().lost_replies = (start.to_owned(), requests);
    }

    /// What is begun from now on about a kind such as `microsoft.compute/virtualmachines` never comes to an end.
    pub fn stick(&self, kind: &str) {
        self.state().stuck.insert(kind.to_owned());
    }

    /// Nothing is refused, denied, throttled, stuck, unnamed, down, hidden or lost any more, and quota is plenty.
    pub fn heal(&self) {
        let mut state = self.state();
        state.refusals.clear();
        state.denied.clear();
        state.throttled = (0, 0);
        state.no_writes_before = None;
        state.failed_prices = Default::default();
        state.lost_replies = (String::new(), 0);
        state.stuck.clear();
        state.unnamed = false;
        state.login_is_down = false;
        state.hidden_images.clear();
        state.options.quota.clear();
    }

    /// All tokens are worthless from now on.
    pub fn revoke_tokens(&self) {
        self.state().tokens.clear();
    }

    /// All tokens end in so many seconds, though they were granted for longer.
    pub fn end_tokens_in(&self, seconds: i64) {
        let end = later(self.clock.now(), jiff::SignedDuration::from_secs(seconds));
        for until in self.state().tokens.values_mut() {
            *until = end.min(*until);
        }
    }

    /// Nobody can log in from now on. Tokens that were granted hold.
    pub fn fail_logins(&self) {
        self.state().login_is_down = true;
    }

    /// A machine ends by somebody else's hand, as when a spot machine is evicted.
    pub fn evict(&self, machine: &str) {
        let now = self.clock.now();
        let mut state = self.state();
        if let Some(machine) = state.machines.get_mut(&machine.to_lowercase()) {
            machine.ends_at = Some(now);
        }
        state.settle(now);
    }

    /// A spot machine will be taken back. False when there is no such machine, or it is no spot machine.
    pub(crate) fn evict_at(&self, machine: &str, at: Timestamp) -> bool {
        let mut state = self.state();
        let machine = state.machines.get_mut(&machine.to_lowercase());
        let Some(machine) = machine.filter(|machine| machine.body["properties"]["priority"] == "Spot") else {
            return false;
        };
        machine.evicted_at.get_or_insert(at);
        true
    }

    /// Subnets exist, besides those that the options name.
    pub fn add_subnet(&self, id: &str) {
        let mut state = self.state();
        if !state
            .options
            .subnets
            .iter()
            .any(|known| known.eq_ignore_ascii_case(id))
        {
            state.options.subnets.push(id.to_owned());
        }
    }

    /// Galleries have one more version of each image, the newest.
    pub fn publish_image(&self, version: &str) {
        let mut state = self.state();
        if !state.options.image_versions.iter().any(|known| known == version) {
            state.options.image_versions.push(version.to_owned());
        }
    }

    /// vCPUs of each family that may be used, from now on.
    pub fn set_quota(&self, quota: BTreeMap<String, i64>) {
        self.state().options.quota = quota;
    }

    /// Machines that are there and were told how to join, by name.
    pub(crate) fn bodies(&self) -> BTreeMap<String, Machine> {
        let now = self.clock.now();
        let mut state = self.state();
        state.settle(now);
        let state = &*state;
        let joining = state.options.joining;
        let machine = |(name, there): (&String, &Resource)| {
            let sku = state
                .skus
                .iter()
                .find(|sku| sku.name == machine_facts::size(&there.body))?;
            let is_up =
                there.failure.is_none() && there.ends_at.is_none() && later(there.ready_at, joining) <= now;
            let machine = Machine {
                told: there.told.clone()?,
                is_up,
                region: state.options.region.clone(),
                zone: there.body["zones"][0].as_str().map(str::to_owned),
                sku: sku.clone(),
            };
            Some((name.clone(), machine))
        };
        state.machines.iter().filter_map(machine).collect()
    }

    /// A network interface is kept for another machine for 180 s.
    pub fn reserve_interface(&self, name: &str) {
        let until = later(self.clock.now(), jiff::SignedDuration::from_secs(180));
        self.state().reserved.insert(name.to_lowercase(), until);
    }

    /// A network interface without machine that somebody's launch has left.
    pub fn leave_interface(&self, name: &str, tags: &Value) {
        let now = self.clock.now();
        let mut state = self.state();
        let subnet = state.options.subnets[0].clone();
        let id = format!(
            "/subscriptions/{}/resourceGroups/nodes/providers/Microsoft.Network/networkInterfaces/{name}",
            state.options.subscription
        );
        let body = json!({
            "location": state.options.region,
            "tags": tags,
            "properties": {"ipConfigurations": [{"name": "ip", "properties": {"subnet": {"id": subnet}}}]},
        });
        drop(state.put_interface(&id, &name.to_lowercase(), body, now));
    }

    /// Machines as they are now.
    #[must_use]
    pub fn machines(&self) -> Vec<Value> {
        let now = self.clock.now();
        let mut state = self.state();
        state.settle(now);
        state
            .machines
            .values()
            .map(|machine| machine.shown(now))
            .collect()
    }

    /// Names of network interfaces.
    #[must_use]
    pub fn interfaces(&self) -> Vec<String> {
        let now = self.clock.now();
        let mut state = self.state();
        state.settle(now);
        state.interfaces.keys().cloned().collect()
    }

    /// What was asked, as `METHOD path → status`.
    #[must_use]
    pub fn log(&self) -> Vec<String> {
        self.state().log.clone()
    }

    /// Answers a request; an error is a reply that was lost.
    ///
    /// # Errors
    /// When it was told to lose replies.
    pub fn answer(&self, request: &Request) -> Result<Response, String> {
        let now = self.clock.now();
        let mut state = self.state();
        state.settle(now);
        let Some(target) = Target::of(&request.url) else {
            return Err(format!("{:?} is no URL", request.url));
        };
        let reply = state.reply(request, &target, now);
        let line = format!("{} {} → {}", request.method, target.path, reply.status);
        let is_lost = state.lost_replies.1 > 0 && line.starts_with(&state.lost_replies.0);
        state.log.push(line);
        if is_lost {
            state.lost_replies.1 -= 1;
            return Err("the connection broke".to_owned());
        }
        Ok(reply)
    }
}

impl State {
    fn reply(&mut self, request: &Request, target: &Target, now: Timestamp) -> Response {
        let parts = target.parts();
        if let [tenant, "oauth2", "v2.0", "token"] = parts[..] {
            return self.log_in(tenant, &request.body, now);
        }
        if let ["api", "retail", "prices"] = parts[..] {
            return self.prices(&request.url);
        }
        let bearer = request.headers.iter().find(|(name, _)| name == "authorization");
        let token = bearer.and_then(|(_, value)| value.strip_prefix("Bearer "));
        let until = token.and_then(|token| self.tokens.get(token));
        if until.is_none_or(|until| now >= *until) {
            let message = "The access token is invalid or expired.";
            return refused(401, "InvalidAuthenticationToken", message);
        }
        if self.throttled.0 > 0 {
            self.throttled.0 -= 1;
            return throttled(self.throttled.1.into());
        }
        if let Some(until) = self.no_writes_before.filter(|until| now < *until)
            && matches!(request.method, "PUT" | "PATCH")
        {
            return throttled(until.duration_since(now).as_secs().max(1));
        }
        let Some(version) = target.version() else {
            let message = "The api-version query parameter (?api-version=) is required for all requests.";
            return refused(400, "MissingApiVersionParameter", message);
        };
        if parts.contains(&"communitygalleries") && !GALLERY_VERSIONS.contains(&version) {
            let message = format!(
                "No registered resource provider found for API version '{version}' for type 'locations/communityGalleries'. The supported api-versions are '{}'.",
                GALLERY_VERSIONS.join(", ")
            );
            return refused(400, "NoRegisteredProviderFound", &message);
        }
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        if let ["providers", "microsoft.resourcegraph", "resources"] = parts[..] {
            return self.query(&body, now);
        }
        let ["subscriptions", subscription, ref rest @ ..] = parts[..] else {
            return not_found(&target.path);
        };
        if subscription != self.options.subscription.to_lowercase() {
            let message = format!("The subscription '{subscription}' could not be found.");
            return refused(404, "SubscriptionNotFound", &message);
        }
        self.of_subscription(request, target, rest, body, now)
    }

    fn of_subscription(
        &mut self,
        request: &Request,
        target: &Target,
        rest: &[&str],
        body: Value,
        now: Timestamp,
    ) -> Response {
        let names = ("value", "nextLink");
        let size = self.options.page;
        match (request.method, rest) {
            ("GET", ["providers", "microsoft.compute", "skus"]) => {
                page(&self.sizes(), (&self.options.base, &request.url), size, names)
            }
            ("GET", ["providers", "microsoft.compute", "locations", _, "usages"]) => {
                page(&self.usages(), (&self.options.base, &request.url), size, names)
            }
            (
                "GET",
                [
                    "providers",
                    provider @ ("microsoft.compute" | "microsoft.containerservice"),
                    "locations",
                    _,
                    "operations",
                    id,
                ],
            ) => {
                let action = format!("GET {provider}/locations/operations");
                if self.denied.contains(&action) {
                    let message =
                        format!("The client does not have authorization to perform action '{action}'.");
                    return refused(403, "AuthorizationFailed", &message);
                }
                self.operation(id, now)
            }
            (
                "GET",
                [
                    "providers",
                    "microsoft.containerservice",
                    "locations",
                    _,
                    "nodeimageversions",
                ],
            ) => {
                let all = self.node_image_versions();
                page(&all, (&self.options.base, &request.url), size, names)
            }
            (
                method,
                [
                    "resourcegroups",
                    group,
                    "providers",
                    "microsoft.containerservice",
                    "managedclusters",
                    below @ ..,
                ],
            ) => {
                let version = target.version().unwrap_or_default();
                let urls = (target.path.as_str(), request.url.as_str());
                let state = request.headers.iter().find(|(name, _)| name == "if-match");
                let state = state.map(|(_, state)| state.as_str());
                self.of_pool((method, version, state), urls, (group, below), body, now)
            }
            (
                "GET",
                [
                    "providers",
                    "microsoft.compute",
                    "locations",
                    _,
                    "communitygalleries",
                    gallery,
                    "images",
                    image,
                    "versions",
                ],
            ) => page(
                &self.image_versions(gallery, image),
                (&self.options.base, &request.url),
                size,
                names,
            ),
            (method, ["resourcegroups", _, "providers", provider, kind, name]) => {
                let kind = format!("{provider}/{kind}");
                if self.denied.contains(&format!("{method} {kind}")) {
                    let message = format!(
                        "The client does not have authorization to perform action '{method} {kind}'."
                    );
                    return refused(403, "AuthorizationFailed", &message);
                }
                match (method, kind.as_str()) {
                    ("PUT", MACHINES) => self.put_machine(&target.path, name, body, now),
                    ("GET", MACHINES) => self.show(self.machines.get(*name), &target.path, now),
                    ("DELETE", MACHINES) => self.delete_machine(name, now),
                    ("PATCH", kind) => self.retag((kind, *name), &target.path, &body, now),
                    ("PUT", INTERFACES) => self.put_interface(&target.path, name, body, now),
                    ("GET", INTERFACES) => self.show(self.interfaces.get(*name), &target.path, now),
                    ("DELETE", INTERFACES) => self.delete_interface(&target.path, name, now),
                    _ => not_found(&target.path),
                }
            }
            (
                "GET",
                [
                    "resourcegroups",
                    _,
                    "providers",
                    "microsoft.network",
                    "virtualnetworks",
                    _,
                    "subnets",
                    name,
                ],
            ) => {
                let exists = self
                    .options
                    .subnets
                    .iter()
                    .any(|id| id.eq_ignore_ascii_case(&target.path));
                if exists {
                    ok(200, &json!({"id": target.path, "name": name, "properties": {}}))
                } else {
                    not_found(&target.path)
                }
            }
            _ => not_found(&target.path),
        }
    }

    fn log_in(&mut self, tenant: &str, form: &[u8], now: Timestamp) -> Response {
        let form = String::from_utf8_lossy(form).into_owned();
        let is = |name: &str, value: &str| form.split('&').any(|pair| pair == format!("{name}={value}"));
        let refuse =
            |code: &str, message: &str| ok(400, &json!({"error": code, "error_description": message}));
        if self.login_is_down {
            let message = "AADSTS90033: A transient error has occurred. Please try again.";
            return ok(
                503,
                &json!({"error": "temporarily_unavailable", "error_description": message}),
            );
        }
        if tenant != self.options.tenant.to_lowercase() {
            return refuse(
                "invalid_request",
                &format!("AADSTS90002: Tenant '{tenant}' not found."),
            );
        }
        if !is("grant_type", "client_credentials") {
            return refuse(
                "unsupported_grant_type",
                "AADSTS70003: The grant type is not supported.",
            );
        }
        if !is("client_id", &self.options.client_id) {
            return refuse(
                "unauthorized_client",
                "AADSTS700016: Application was not found in the directory.",
            );
        }
        if !is("client_assertion", &self.options.assertion) {
            return refuse(
                "invalid_client",
                "AADSTS700024: Client assertion is not within its valid time range.",
            );
        }
        let token = format!("token-{}", self.next_number());
        let lasts = self.options.token_lasts;
        self.tokens.insert(token.clone(), later(now, lasts));
        ok(
            200,
            &json!({"token_type": "Bearer", "expires_in": lasts.as_secs(), "access_token": token}),
        )
    }

    fn usages(&self) -> Vec<Value> {
        let quota = self.options.quota.iter();
        quota
            .map(|(family, limit)| {
                json!({"name": {"value": family, "localizedValue": family}, "unit": "Count", "currentValue": self.used(family), "limit": limit})
            })
            .collect()
    }

    fn operation(&self, id: &str, now: Timestamp) -> Response {
        let Some(operation) = self.operations.get(id) else {
            return not_found(id);
        };
        let body = match &operation.failure {
            _ if now < operation.done_at => json!({"name": id, "status": "InProgress"}),
            None => json!({"name": id, "status": "Succeeded"}),
            Some((code, message)) => {
                json!({"name": id, "status": "Failed", "error": {"code": code, "message": message}})
            }
        };
        with(ok(200, &body), "retry-after", "5")
    }
}
