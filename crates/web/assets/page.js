// @ts-check
// Keeps the page up to date and adds keys. What is drawn comes from the server, whole, as without this script; only parts that differ are put in.

const PARTS = ["top", "whatif", "time", "boxes", "detail", "pending", "budgets", "nodes"];
const STALE_AFTER = 5000;

/** @param {string} id */
const byId = (id) => document.getElementById(id);
const announce = byId("announce");
let localTime = false;
try { localTime = localStorage.getItem("zone") === "local"; } catch { /* a browser that keeps nothing */ }

// --- putting in what has changed

/** Where the focus is, in words that survive a new drawing: what has it first, then what is closest to that. */
function focusKeys() {
  const at = document.activeElement;
  if (!(at instanceof HTMLElement || at instanceof SVGElement) || at === document.body) return [];
  const part = PARTS.find((id) => at.closest(`#${id}`));
  const within = part ? `#${part} ` : "";
  const keys = at.id ? [`#${CSS.escape(at.id)}`] : [];
  for (const name of ["node", "row", "sort", "toggle", "pool", "pod"]) {
    const value = at.dataset[name];
    if (value) keys.push(`${within}[data-${name}="${CSS.escape(value)}"]`);
  }
  const href = at.getAttribute("href");
  if (href) keys.push(`${within}[href="${CSS.escape(href)}"]`);
  // What is gone leaves the focus in its place, and not at the top of the page.
  if (at.matches("a.node")) keys.push("a.node[tabindex='0']");
  if (at.dataset.row) keys.push("#nodes [data-row]");
  // A part that is not shown any more leaves it to the next one.
  if (part) keys.push(...PARTS.slice(PARTS.indexOf(part)).map((id) => `#${id}`));
  return keys;
}
/** @param {string[]} keys */
function refocus(keys) {
  for (const key of keys) {
    const one = document.querySelector(key);
    if (!(one instanceof HTMLElement || one instanceof SVGElement)) continue;
    if (one.matches("a.node")) rove(one);
    else if (one.tabIndex < 0 && !one.hasAttribute("tabindex")) one.setAttribute("tabindex", "-1");
    one.focus({ preventScroll: true });
    if (document.activeElement === one) return;
  }
}
/** Of all boxes one is reached by Tab. @param {Element} box */
function rove(box) {
  for (const one of document.querySelectorAll("a.node[tabindex='0']")) one.setAttribute("tabindex", "-1");
  box.setAttribute("tabindex", "0");
}

/** @param {Document} fresh */
function put(fresh) {
  const [focused, focus] = [document.activeElement, focusKeys()];
  const input = /** @type {HTMLInputElement | null} */ (byId("find"));
  const typed = input && document.activeElement === input ? [input.value, input.selectionStart, input.selectionEnd] : null;
  for (const id of PARTS) {
    const [old, now] = [byId(id), fresh.getElementById(id)];
    if (!old || !now || kept.get(id) === now.outerHTML) continue;
    kept.set(id, now.outerHTML);
    const [x, y] = [old.scrollLeft, old.scrollTop];
    const inner = old.querySelector(".scroll");
    const left = inner ? inner.scrollLeft : 0;
    old.replaceWith(document.adoptNode(now));
    now.scrollTo(x, y);
    const scroll = now.querySelector(".scroll");
    if (scroll) scroll.scrollLeft = left;
  }
  document.documentElement.dataset.revision = fresh.documentElement.dataset.revision;
  dress();
  if (typed) {
    const again = /** @type {HTMLInputElement} */ (byId("find"));
    again.value = String(typed[0]);
    again.focus();
    again.setSelectionRange(Number(typed[1]), Number(typed[2]));
  } else if (!focused?.isConnected) {
    refocus(focus);
  }
}
/** @type {Map<string, string>} */
const kept = new Map(PARTS.map((id) => [id, byId(id)?.outerHTML ?? ""]));

/** No answer is waited for longer: a connection can be open and dead. */
const PATIENCE = 60000;
/** The same while nobody has asked for another page: until then what is shown would be old, and say that it is live. */
const PATIENCE_REDRAWING = 15000;
const address = () => location.pathname + location.search;
let [asked, drawn] = [0, 0];
/** Why the server has not drawn anew what it was asked for last; until it does, what is shown is old, whatever the stream says. */
let refused = "";
/** The page of an address, or why there is none. @param {string} where @param {number} patience */
async function fetched(where, patience) {
  try {
    const response = await fetch(where, { headers: { accept: "text/html" }, signal: AbortSignal.timeout(patience) });
    const text = await response.text();
    if (response.ok) return { text, wrong: "" };
    return { text, wrong: response.status === 401 ? "401: open the printed address again" : `${response.status}: not drawn anew` };
  } catch {
    return { text: "", wrong: "not drawn anew" };
  }
}
/** Fetches the page of the address and puts it in, unless the address has changed meanwhile or a later answer was faster. @param {number} [patience] */
async function show(patience = PATIENCE) {
  const [mine, where] = [++asked, address()];
  const { text, wrong } = await fetched(where, patience);
  if (where !== address() || mine < drawn) return;
  if (wrong) {
    // It is asked for again by the next sign of life.
    refused = wrong;
    state("off", refused);
    return;
  }
  drawn = mine;
  refused = "";
  put(new DOMParser().parseFromString(text, "text/html"));
}

let [refreshing, again] = [false, false];
/** Draws the same address anew, one fetch at a time: what takes longer than the next change is shown all the same, and the next is asked for after it. */
async function refresh() {
  again = true;
  if (refreshing) return;
  refreshing = true;
  try {
    while (again) {
      again = false;
      await show(PATIENCE_REDRAWING);
    }
  } finally {
    refreshing = false;
  }
}

/** @param {string} href @param {string} [focus] */
async function go(href, focus) {
  history.pushState(null, "", href);
  await show();
  if (focus) byId(focus)?.focus();
}

addEventListener("popstate", () => show());
document.addEventListener("click", (event) => {
  if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = event.target instanceof Element ? event.target.closest("a[href^='/']") : null;
  if (!link) return;
  event.preventDefault();
  const toDetail = ["data-node", "data-row", "data-pod"].some((name) => link.hasAttribute(name));
  go(link.getAttribute("href") ?? "/", toDetail && event.detail === 0 ? "detail" : undefined);
});
document.addEventListener("submit", (event) => {
  const form = /** @type {HTMLFormElement} */ (event.target);
  if (!form.classList.contains("find")) return;
  event.preventDefault();
  find(form);
});
/** @param {HTMLFormElement} form */
function find(form) {
  const pairs = [...new FormData(form)].filter(([, value]) => value !== "").map(([name, value]) => [name, String(value)]);
  go(`/?${new URLSearchParams(pairs)}`);
}
let typing = 0;
document.addEventListener("input", (event) => {
  if (!(event.target instanceof HTMLInputElement) || event.target.id !== "find") return;
  const form = event.target.form;
  clearTimeout(typing);
  typing = setTimeout(() => form && find(form), 250);
});

// --- the stream of changes

/** @type {EventSource | null} */
let stream = null;
/** Stops listening. @type {(() => void) | null} */
let stop = null;
let heard = performance.now();
/** When it was last begun anew, because nothing was heard. */
let tried = 0;
let due = 0;
// A browser opens six connections to one server for all of its pages together. Of those that are visible one listens, and tells the others.
// (Locks need https or a loopback address.) Where the one is silent for too long, each listens for itself until it is heard again.
const others = "locks" in navigator ? new BroadcastChannel("changes") : null;
let alone = false;
if (others) others.onmessage = (event) => {
  if (document.hidden) return;
  if (alone) { alone = false; close(); }
  take(event.data.kind, event.data.text);
};

function listen() {
  if (stop || document.hidden) return;
  if (!others) { open(); stop = close; return; }
  const waiting = new AbortController();
  stop = () => { waiting.abort(); alone = false; close(); };
  navigator.locks.request("changes", { signal: waiting.signal }, () => new Promise((done) => {
    alone = false;
    close();
    open();
    stop = () => { close(); done(undefined); };
  })).catch(() => { /* hidden before its turn came */ });
}
function open() {
  stream = new EventSource("/api/changes");
  for (const kind of ["delta", "reset", "beat", "trouble"]) stream.addEventListener(kind, (event) => {
    take(kind, event.data);
    if (!alone) others?.postMessage({ kind, text: event.data });
  });
}
function close() {
  stream?.close();
  stream = null;
}
/** Something that the stream has said. @param {string} kind @param {string} text */
function take(kind, text) {
  heard = performance.now();
  if (refused) state("off", refused);
  else if (kind === "trouble") state("off", text);
  else state("on", "live");
  const isOther = kind !== "trouble" && text !== document.documentElement.dataset.revision;
  // What was refused is asked for again by any sign of life, also where nothing new is told.
  if (kind === "delta" || (text !== "0" && (refused !== "" || isOther))) {
    clearTimeout(due);
    due = setTimeout(refresh, 30);
  }
}
/** @param {string} kind @param {string} text */
function state(kind, text) {
  const live = byId("live");
  if (!live || live.textContent === text) return;
  live.className = kind;
  live.textContent = text;
}
setInterval(() => {
  if (document.hidden || performance.now() - heard < STALE_AFTER) return;
  const since = byId("top")?.querySelector(".when time")?.textContent ?? "";
  state("off", `stale since ${since}`);
  // A connection can be open and dead, and who listens for all can be held up.
  if (performance.now() - tried < STALE_AFTER) return;
  tried = performance.now();
  if (stream) close(); else alone = true;
  open();
}, 500);
document.addEventListener("visibilitychange", () => {
  if (document.hidden) { stop?.(); stop = null; } else { heard = performance.now(); listen(); refresh(); }
});
let announced = "";
setInterval(() => {
  const text = [...document.querySelectorAll("#top .numbers > div")].slice(0, 3).map((one) => one.textContent).join(", ");
  if (announce && announced && text !== announced) announce.textContent = text;
  announced = text;
}, 10000);

// --- after each drawing

function dress() {
  for (const id of ["zone", "help"]) byId(id)?.removeAttribute("hidden");
  const zone = byId("zone");
  if (zone) zone.textContent = localTime ? "local time" : "UTC";
  const now = document.querySelector("#top .when time")?.getAttribute("datetime");
  const today = new Date(now ?? "").toDateString();
  if (localTime) for (const one of document.querySelectorAll("time[datetime]")) {
    const at = new Date(one.getAttribute("datetime") ?? "");
    // What is today in UTC may be yesterday here.
    const isDated = one.hasAttribute("data-date") || at.toDateString() !== today;
    if (!Number.isNaN(at.getTime())) one.textContent = isDated ? at.toLocaleString() : at.toLocaleTimeString();
  }
  const boxes = document.querySelectorAll("a.node");
  const current = document.querySelector("a.node.chosen") ?? boxes[0];
  if (current && !document.querySelector("a.node[tabindex='0']")) rove(current);
}
document.addEventListener("click", (event) => {
  if (!(event.target instanceof Element)) return;
  if (event.target.id === "help") keys();
  if (event.target.id === "zone") {
    localTime = !localTime;
    try { localStorage.setItem("zone", localTime ? "local" : "utc"); } catch { /* as above */ }
    kept.clear();
    refresh();
  }
  const map = event.target.closest("svg[data-compact]");
  if (map) at(map, event).then((found) => found && go(found.href));
});
function keys() { const dialog = /** @type {HTMLDialogElement} */ (byId("keys")); if (!dialog.open) dialog.showModal(); }

// --- pointing at boxes

/** The node at a point of a drawing of thousands. @param {Element} map @param {MouseEvent} event */
async function at(map, event) {
  const frame = map.getBoundingClientRect();
  const scale = 1000 / frame.width;
  const query = new URLSearchParams(location.search);
  query.set("x", ((event.clientX - frame.left) * scale).toFixed(1));
  query.set("y", ((event.clientY - frame.top) * scale).toFixed(1));
  const response = await fetch(`/api/box?${query}`);
  return response.ok ? response.json() : null;
}
const tip = byId("tip");
let pointing = 0;
document.addEventListener("pointermove", (event) => {
  if (!tip || !(event.target instanceof Element)) return;
  clearTimeout(pointing);
  const map = event.target.closest("svg[data-compact]");
  if (!map) { tip.hidden = true; return; }
  pointing = setTimeout(async () => {
    const found = await at(map, event);
    tip.hidden = !found;
    if (!found) return;
    tip.textContent = found.text;
    tip.style.left = `${Math.min(event.clientX + 14, innerWidth - 340)}px`;
    tip.style.top = `${event.clientY + 14}px`;
  }, 60);
});

// --- keys

/** The box next to one in a direction. @param {Element} from @param {string} key */
function neighbour(from, key) {
  const middle = (/** @type {Element} */ one) => { const r = one.getBoundingClientRect(); return [r.left + r.width / 2, r.top + r.height / 2]; };
  const [x, y] = middle(from);
  let [best, least] = [/** @type {Element | null} */ (null), Infinity];
  for (const one of document.querySelectorAll("a.node")) {
    const [cx, cy] = middle(one);
    const [dx, dy] = [cx - x, cy - y];
    const [along, across] = key === "ArrowRight" ? [dx, dy] : key === "ArrowLeft" ? [-dx, dy] : key === "ArrowDown" ? [dy, dx] : [-dy, dx];
    const far = along + 3 * Math.abs(across);
    if (along > 1 && far < least) [best, least] = [one, far];
  }
  return best;
}
/** @param {string} panel @param {number} choice */
function turn(panel, choice) {
  const links = [...document.querySelectorAll(`#${panel} nav.choice`)][choice]?.querySelectorAll("a");
  if (!links) return;
  const now = [...links].findIndex((one) => one.hasAttribute("aria-current"));
  go(links[(now + 1) % links.length].getAttribute("href") ?? "/");
}
document.addEventListener("keydown", (event) => {
  if (event.metaKey || event.ctrlKey || event.altKey) return;
  const target = event.target instanceof Element ? event.target : document.body;
  if (target instanceof HTMLInputElement) {
    if (event.key === "Escape") target.blur();
    return;
  }
  if (/** @type {HTMLDialogElement} */ (byId("keys")).open) return;
  const box = target.closest("a.node");
  const act = {
    "/": () => byId("find")?.focus(),
    "?": keys,
    g: () => turn("boxes", 0),
    s: () => turn("boxes", 1),
    b: () => /** @type {SVGElement | null} */ (document.querySelector("a.node[tabindex='0']"))?.focus(),
    z: () => turn("time", 0),
    "[": () => byId("earlier")?.click(),
    "]": () => byId("later")?.click(),
    ".": () => byId("newest")?.click(),
    p: () => /** @type {HTMLElement | null} */ (document.querySelector("#pending a") ?? byId("pending"))?.focus(),
    t: () => /** @type {HTMLElement | null} */ (document.querySelector("#nodes [data-row]"))?.focus(),
    w: () => /** @type {HTMLElement | null} */ (document.querySelector("#detail [data-toggle]"))?.click(),
    Escape: () => /** @type {HTMLElement | null} */ (byId("close"))?.click(),
  }[event.key];
  if (act) { event.preventDefault(); act(); }
  else if (box && event.key.startsWith("Arrow")) {
    event.preventDefault();
    const next = neighbour(box, event.key);
    if (!(next instanceof SVGElement)) return;
    rove(next);
    next.focus();
  }
});

dress();
listen();
