// @ts-check
// Keeps the page up to date and adds keys. What is drawn comes from the server, whole, as without this script; only what differs is put in. What stays is
// left in its place, so that what the reader has selected, opened, typed or is pressing stays, too.

const PARTS = ["top", "whatif", "time", "boxes", "detail", "pending", "budgets", "nodes"];
const STALE_AFTER = 5000;
/** The attributes that name what an element is about. */
const ABOUT = ["node", "row", "sort", "toggle", "gone", "pool", "pod", "key"];

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
  for (const name of ABOUT) {
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
  for (const one of box.ownerDocument.querySelectorAll("a.node[tabindex='0']")) one.setAttribute("tabindex", "-1");
  box.setAttribute("tabindex", "0");
}

/** What tells a node from those beside it. A row or line is about what it links to; who is pressing that must not find another in its place. @param {Node} node */
function identity(node) {
  if (!(node instanceof HTMLElement || node instanceof SVGElement)) return node.nodeName;
  const inner = node.matches("tr, li") ? /** @type {HTMLElement | null} */ (node.querySelector("a, time")) : null;
  const one = inner ?? node;
  const name = one.id || ABOUT.map((about) => one.dataset[about]).find((value) => value);
  return `${node.nodeName} ${name ?? (one.matches("a") ? one.textContent : inner?.getAttribute("datetime"))}`;
}
/** What the reader has done to an element is not undone by a drawing that knows nothing of it. @param {Element} one @param {string} attribute */
function isOfReader(one, attribute) {
  return (attribute === "open" && one.matches("details")) || (attribute === "tabindex" && one === document.activeElement);
}
/** Makes an element look like a fresh one. What both have stays the same object. @param {Element} old @param {Element} now */
function patch(old, now) {
  if (old.isEqualNode(now)) return;
  for (const { name } of [...old.attributes]) if (!now.hasAttribute(name) && !isOfReader(old, name)) old.removeAttribute(name);
  for (const { name, value } of now.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  const left = Map.groupBy(old.childNodes, (one) => identity(one));
  const pairs = [...now.childNodes].map((fresh) => ({ fresh, one: left.get(identity(fresh))?.shift() }));
  for (const gone of [...left.values()].flat()) gone.remove();
  let place = old.firstChild;
  for (const { fresh, one } of pairs) {
    if (!one) { old.insertBefore(document.adoptNode(fresh), place); continue; }
    // What has moved down goes out of the way by itself, instead of all that it stood before.
    if (place && place !== one && place.nextSibling === one) { old.append(place); place = one; }
    if (one === place) place = one.nextSibling;
    else old.insertBefore(one, place);
    if (one instanceof Element && fresh instanceof Element) patch(one, fresh);
    else if (one.nodeValue !== fresh.nodeValue) one.nodeValue = fresh.nodeValue;
  }
}

/** @param {Document} fresh */
function put(fresh) {
  const [focused, focus] = [document.activeElement, focusKeys()];
  const late = fresh.getElementById("live")?.textContent;
  if (late && said.kind === "on") said = { kind: "off", text: late };
  dress(fresh);
  for (const id of PARTS) {
    const [old, now] = [byId(id), fresh.getElementById(id)];
    if (old && now) patch(old, now);
  }
  document.documentElement.dataset.revision = fresh.documentElement.dataset.revision;
  const input = /** @type {HTMLInputElement | null} */ (byId("find"));
  const isAhead = typing !== 0 || (isTyped && input === document.activeElement);
  if (input && !isAhead && input.value !== input.defaultValue) input.value = input.defaultValue;
  if (document.activeElement !== focused) refocus(focus);
}

// What is pressed stays under the pointer until it is let go and clicked. Not for longer than anybody presses: that it was let go may never be told.
let held = Promise.resolve();
let letGo = () => { /* nothing is held */ };
document.addEventListener("pointerdown", (event) => {
  if (event.isPrimary) held = new Promise((done) => { letGo = done; setTimeout(done, STALE_AFTER); });
});
for (const end of ["pointerup", "pointercancel"]) document.addEventListener(end, () => setTimeout(letGo));

/** No answer is waited for longer: a connection can be open and dead. */
const PATIENCE = 60000;
/** The same while nobody has asked for another page: until then what is shown would be old, and say that it is live. */
const PATIENCE_REDRAWING = 15000;
const address = () => location.pathname + location.search;
let [asked, drawn] = [0, 0];
/** The address that is asked for, the one that is drawn, and what gives up the first. */
let [wanted, shown, leaving] = [address(), address(), new AbortController()];
const UNANSWERED = "not drawn anew";
/** Why the server has not drawn anew what it was asked for last; until it does, what is shown is old, whatever the stream says. */
let refused = "";
/** The page of an address, or why there is none. @param {string} where @param {number} patience @param {AbortSignal} left */
async function fetched(where, patience, left) {
  try {
    const signal = AbortSignal.any([AbortSignal.timeout(patience), left]);
    const response = await fetch(where, { headers: { accept: "text/html" }, signal });
    const text = await response.text();
    if (response.ok) return { text, wrong: "" };
    return { text, wrong: response.status === 401 ? "401: open the printed address again" : `${response.status}: ${UNANSWERED}` };
  } catch {
    return { text: "", wrong: UNANSWERED };
  }
}
/** Fetches the page of the address and puts it in, unless the address has changed meanwhile or a later answer was faster. @param {number} [patience] */
async function show(patience = PATIENCE) {
  const [mine, where] = [++asked, address()];
  if (where !== wanted) {
    // Nobody waits for the other any more, and the server would answer it first.
    leaving.abort();
    [wanted, leaving] = [where, new AbortController()];
  }
  const left = leaving.signal;
  const { text, wrong } = await fetched(where, patience, left);
  await held;
  // Who has come back to the address meanwhile has asked for it again.
  if (left.aborted || where !== address() || mine < drawn) return;
  if (wrong) {
    // It is asked for again by the next sign of life.
    refused = wrong;
    tell(document);
    return;
  }
  [drawn, shown] = [mine, where];
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

// --- going elsewhere

/** The address with a change of what it says now, which may not be drawn yet. @param {(query: URLSearchParams) => void} change */
function changed(change) {
  const query = new URLSearchParams(location.search);
  change(query);
  // As the server writes it.
  const plain = (/** @type {string} */ text) => encodeURIComponent(text).replaceAll("%2F", "/").replaceAll("%3A", ":");
  const pairs = [...query].map(([name, value]) => `${plain(name)}=${plain(value)}`);
  return pairs.length > 0 ? `/?${pairs.join("&")}` : "/";
}
/** Where a link leads. What one assumes away comes to the rest, or goes from it, also while the rest is not drawn yet. @param {HTMLElement | SVGElement} link */
function target(link) {
  const { toggle, gone } = link.dataset;
  const [name, value] = toggle ? ["without", toggle] : ["gone", gone];
  // What is drawn knows best what of its address is assumed: nothing, where that is too much.
  if (!value || shown === address()) return link.getAttribute("href") ?? "/";
  return changed((query) => {
    const all = query.getAll(name);
    const others = all.filter((one) => one !== value);
    const isTaken = others.length < all.length && link.matches("[role=switch]");
    query.delete(name);
    for (const one of isTaken ? others : [...others, value]) query.append(name, one);
  });
}

/** A text is on its way from the field into the address. */
let typing = 0;
/** The reader has typed since the address became another in another way: what is in the field is what is meant. */
let isTyped = false;
/** The address is one that typing has made: the next letter makes it another, and is no step back. */
let isRefining = false;
/** What was typed is not asked for any more. */
function leaveField() {
  clearTimeout(typing);
  [typing, isTyped, isRefining] = [0, false, false];
}
/** @param {string} href @param {string} [focus] */
async function go(href, focus) {
  leaveField();
  if (href !== address()) history.pushState(null, "", href);
  await show();
  if (focus) byId(focus)?.focus();
}
/** @param {string} text */
function find(text) {
  clearTimeout(typing);
  typing = 0;
  const href = changed((query) => {
    query.delete("part");
    if (text.trim()) query.set("find", text.trim());
    else query.delete("find");
  });
  if (isRefining) history.replaceState(null, "", href);
  else if (href !== address()) {
    history.pushState(null, "", href);
    isRefining = true;
  }
  show();
}

addEventListener("popstate", () => {
  leaveField();
  show();
});
document.addEventListener("click", (event) => {
  if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = /** @type {HTMLElement | SVGElement | null} */ (event.target instanceof Element ? event.target.closest("a[href^='/']") : null);
  if (!link) return;
  event.preventDefault();
  const toDetail = ["data-node", "data-row", "data-pod"].some((name) => link.hasAttribute(name));
  go(target(link), toDetail && event.detail === 0 ? "detail" : undefined);
});
document.addEventListener("submit", (event) => {
  const form = /** @type {HTMLFormElement} */ (event.target);
  if (!form.classList.contains("find")) return;
  event.preventDefault();
  find(String(new FormData(form).get("find") ?? ""));
});
document.addEventListener("input", (event) => {
  if (!(event.target instanceof HTMLInputElement) || event.target.id !== "find") return;
  const text = event.target.value;
  isTyped = true;
  clearTimeout(typing);
  typing = setTimeout(() => find(text), 250);
});
document.addEventListener("focusin", (event) => {
  if (event.target === byId("find")) isRefining = false;
});

// --- the stream of changes

/** @type {EventSource | null} */
let stream = null;
/** Stops listening. @type {(() => void) | null} */
let stop = null;
let heard = performance.now();
const isSilent = () => performance.now() - heard >= STALE_AFTER;
/** What it has said last of what is shown. */
let said = { kind: "", text: "" };
/** The connection was lost: whoever serves next may be another run, whose revisions are others of the same numbers. */
let isBroken = false;
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
  const [waiting, since] = [new AbortController(), performance.now()];
  stop = () => { waiting.abort(); alone = false; close(); };
  navigator.locks.request("changes", { signal: waiting.signal }, () => new Promise((done) => {
    alone = false;
    close();
    // Who has listened until now may have been the only one to lose the connection.
    isBroken ||= performance.now() - since > 1000;
    open();
    stop = () => { close(); done(undefined); };
  })).catch(() => { /* hidden before its turn came */ });
}
function open() {
  const share = (/** @type {string} */ kind, /** @type {string} */ text) => {
    take(kind, text);
    if (!alone) others?.postMessage({ kind, text });
  };
  stream = new EventSource("/api/changes");
  for (const kind of ["delta", "reset", "beat", "trouble"]) stream.addEventListener(kind, (event) => share(kind, event.data));
  stream.addEventListener("error", () => { isBroken = true; });
  stream.addEventListener("open", () => {
    if (isBroken) share("back", "");
    isBroken = false;
  });
}
function close() {
  stream?.close();
  stream = null;
}
/** Draws anew in a moment, once for all that is told in it. */
function soon() {
  clearTimeout(due);
  due = setTimeout(refresh, 30);
}
/** Something that the stream has said; `back` once it is there again. @param {string} kind @param {string} text */
function take(kind, text) {
  if (kind === "back") { soon(); return; }
  heard = performance.now();
  said = kind === "trouble" ? { kind: "off", text } : { kind: "on", text: "live" };
  tell(document);
  const isOther = kind !== "trouble" && text !== document.documentElement.dataset.revision;
  // What was refused is asked for again by any sign of life, also where nothing new is told.
  if (kind === "delta" || (text !== "0" && (refused !== "" || isOther))) soon();
}
/** Whether what a drawing shows is live, and why not. @param {Document} drawing */
function standing(drawing) {
  const since = drawing.querySelector("#top .when time")?.textContent ?? "";
  // That nobody answers says less than since when.
  if (refused !== "" && !(isSilent() && refused === UNANSWERED)) return { kind: "off", text: refused };
  return isSilent() ? { kind: "off", text: `stale since ${since}` } : said;
}
let announcedKind = "";
/** Says so in the drawing, and aloud where it has changed from one to the other. @param {Document} drawing */
function tell(drawing) {
  const { kind, text } = standing(drawing);
  const live = drawing.getElementById("live");
  if (!live || !kind) return;
  if (live.className !== kind) live.className = kind;
  if (live.textContent !== text) live.textContent = text;
  if (announce && announcedKind && announcedKind !== kind) announce.textContent = text;
  announcedKind = kind;
}
setInterval(() => {
  if (document.hidden || !isSilent()) return;
  tell(document);
  // A connection can be open and dead, and who listens for all can be held up.
  if (performance.now() - tried < STALE_AFTER) return;
  tried = performance.now();
  if (stream) close(); else alone = true;
  open();
  // Whoever is not let in any more is told so by this only.
  refresh();
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

/** What the script adds to a drawing. @param {Document} drawing */
function dress(drawing) {
  for (const id of ["zone", "help"]) drawing.getElementById(id)?.removeAttribute("hidden");
  const zone = drawing.getElementById("zone");
  if (zone) zone.textContent = localTime ? "local time" : "UTC";
  const now = drawing.querySelector("#top .when time")?.getAttribute("datetime");
  const today = new Date(now ?? "").toDateString();
  if (localTime) for (const one of drawing.querySelectorAll("time[datetime]")) {
    const at = new Date(one.getAttribute("datetime") ?? "");
    // What is today in UTC may be yesterday here.
    const isDated = one.hasAttribute("data-date") || at.toDateString() !== today;
    if (!Number.isNaN(at.getTime())) one.textContent = isDated ? at.toLocaleString() : at.toLocaleTimeString();
  }
  const there = (/** @type {Element | null | undefined} */ box) => {
    const name = box?.getAttribute("data-node");
    return name ? drawing.querySelector(`a.node[data-node="${CSS.escape(name)}"]`) : null;
  };
  const current = there(document.activeElement?.closest("a.node")) ?? drawing.querySelector("a.node.chosen");
  const reached = current ?? there(document.querySelector("a.node[tabindex='0']")) ?? drawing.querySelector("a.node");
  if (reached) rove(reached);
  tell(drawing);
}
document.addEventListener("click", (event) => {
  if (!(event.target instanceof Element)) return;
  if (event.target.id === "help") keys();
  if (event.target.id === "zone") {
    localTime = !localTime;
    try { localStorage.setItem("zone", localTime ? "local" : "utc"); } catch { /* as above */ }
    refresh();
  }
  const map = event.target.closest("svg[data-compact]");
  const where = address();
  if (map) at(map, event).then((found) => found && where === address() && go(found.href));
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
  try {
    const response = await fetch(`/api/box?${query}`);
    return response.ok ? await response.json() : null;
  } catch {
    return null;
  }
}
const tip = byId("tip");
let [pointing, pointed] = [0, 0];
/** The pointer is elsewhere: what is answered of where it was comes too late. */
function pointElsewhere() {
  clearTimeout(pointing);
  pointed += 1;
}
document.addEventListener("pointermove", (event) => {
  if (!tip || !(event.target instanceof Element)) return;
  pointElsewhere();
  const mine = pointed;
  const map = event.target.closest("svg[data-compact]");
  if (!map) { tip.hidden = true; return; }
  pointing = setTimeout(async () => {
    const found = await at(map, event);
    if (mine !== pointed) return;
    tip.hidden = !found;
    if (!found) return;
    tip.textContent = found.text;
    tip.style.left = `${Math.min(event.clientX + 14, innerWidth - 340)}px`;
    tip.style.top = `${event.clientY + 14}px`;
  }, 60);
});
document.documentElement.addEventListener("pointerleave", () => {
  pointElsewhere();
  if (tip) tip.hidden = true;
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
/** To the next of some choices, counted from the one in the address. @param {string} panel @param {number} choice @param {string} name */
function turn(panel, choice, name) {
  const links = document.querySelectorAll(`#${panel} nav.choice`)[choice]?.querySelectorAll("a") ?? [];
  const all = [...links].map((one) => one.textContent ?? "");
  if (all.length === 0) return;
  // The first is the one that need not be said.
  const now = Math.max(0, all.indexOf(new URLSearchParams(location.search).get(name) ?? ""));
  const next = (now + 1) % all.length;
  go(changed((query) => next === 0 ? query.delete(name) : query.set(name, all[next])));
}
document.addEventListener("keydown", (event) => {
  if (event.metaKey || event.ctrlKey || event.altKey) return;
  const target = event.target instanceof Element ? event.target : document.body;
  if (target instanceof HTMLInputElement) {
    // A browser would empty the field, and what is shown would be chosen by a text that is nowhere.
    if (event.key === "Escape") { event.preventDefault(); target.blur(); }
    return;
  }
  if (/** @type {HTMLDialogElement} */ (byId("keys")).open) return;
  const toggle = /** @type {HTMLElement | null} */ (target.closest("[role=switch]"));
  // A key that is held is pressed once, but for the arrows.
  if (event.repeat && !event.key.startsWith("Arrow")) {
    // Nor does it move the page, or follow the switch as a link again.
    if (toggle && [" ", "Enter"].includes(event.key)) event.preventDefault();
    return;
  }
  if (toggle && event.key === " ") { event.preventDefault(); toggle.click(); return; }
  const box = target.closest("a.node");
  const act = {
    "/": () => byId("find")?.focus(),
    "?": keys,
    g: () => turn("boxes", 0, "group"),
    s: () => turn("boxes", 1, "size"),
    b: () => /** @type {SVGElement | null} */ (document.querySelector("a.node[tabindex='0']"))?.focus(),
    z: () => turn("time", 0, "range"),
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

dress(document);
listen();
