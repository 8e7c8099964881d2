"""How it looks: contrasts, widths, what moves, and what is told without colour; in every scheme of the reader."""

import copy
import io

from api import Api
from browser import Browser, check, equal, live, until_true
from cluster import Running, dump, still, until

# What both of the next share: colours as they are seen, over what lies beneath.
COLOURS = """
  const parse = (text) => { const part = text.startsWith('rgb') ? text.match(/[\\d.]+/g).map(Number) : null; return part && part[3] !== 0 ? part : null; };
  const light = (colour) => colour.slice(0, 3).map((v) => v / 255).map((v) => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const ratio = (one, other) => { const [a, b] = [light(one), light(other)]; return (Math.max(a, b) + .05) / (Math.min(a, b) + .05); };
  const ground = (one) => { for (; one; one = one.parentElement) { const found = parse(getComputedStyle(one).backgroundColor); if (found) return found; } return [255, 255, 255]; };
  const paint = (one, what, over) => {
    const style = getComputedStyle(one);
    const colour = parse(style[what]);
    const part = colour && (colour[3] ?? 1) * Number(style[what + 'Opacity']) * Number(style.opacity);
    return colour && over.map((v, i) => colour[i] * part + v * (1 - part));
  };
  // The colours that a part of a drawing lies on: those of the shapes before it, the last first to be seen.
  const beneath = (one) => {
    const svg = one.closest('svg'), own = one.getBoundingClientRect();
    let grounds = [ground(svg).slice(0, 3)];
    for (const shape of svg.querySelectorAll('rect, path, circle')) {
      if (shape === one || shape.closest('defs') || !(shape.compareDocumentPosition(one) & Node.DOCUMENT_POSITION_FOLLOWING)) continue;
      // Of more commands at a time than there are lanes, some lie on others.
      if (shape.matches('rect.bar') && one.matches('rect.bar')) continue;
      const rect = shape.getBoundingClientRect();
      const wide = Math.min(rect.right, own.right) - Math.max(rect.left, own.left), high = Math.min(rect.bottom, own.bottom) - Math.max(rect.top, own.top);
      if (wide < Math.min(2, own.width) || high < Math.min(2, own.height)) continue;
      const painted = grounds.map((under) => paint(shape, 'fill', under)).filter((colour) => colour);
      const isWhole = shape.tagName === 'rect' && wide >= own.width - 1 && high >= own.height - 1;
      if (painted.length) grounds = isWhole ? painted : [...grounds, ...painted];
    }
    return grounds;
  };
  const isShown = (one) => !one.closest('[hidden], defs, .hidden-text, .skip, dialog:not([open])');
  const told = (one, least) => [one.tagName, one.getAttribute('class'), one.closest('[id]')?.id, one.textContent.slice(0, 30), least.toFixed(2)];
"""
# Texts, in drawings and elsewhere.
CONTRAST = """() => {
  COLOURS
  const bad = [];
  for (const one of document.querySelectorAll('body *')) {
    if (!isShown(one) || one.tagName === 'title' || ![...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim())) continue;
    const of = (under) => one.closest('svg') ? paint(one, 'fill', under) : parse(getComputedStyle(one).color);
    const least = Math.min(...(one.closest('svg') ? beneath(one) : [ground(one)]).map((under) => ratio(of(under), under)));
    if (least < 4.5) bad.push(told(one, least));
  }
  return bad;
}""".replace("COLOURS", COLOURS)
# What a drawing says without words: its shapes, by what they are filled with or by their outline.
GRAPHICS = """() => {
  COLOURS
  const bad = [];
  for (const one of document.querySelectorAll('svg .room, #time .line, #time .waiting, #time rect.bar, #time .lid, .lane .closed')) {
    if (!isShown(one)) continue;
    const best = (under) => Math.max(...['fill', 'stroke'].map((what) => paint(one, what, under)).map((colour) => colour ? ratio(colour, under) : 1));
    const least = Math.min(...beneath(one).map(best));
    if (least < 3) bad.push(told(one, least));
  }
  return bad;
}""".replace("COLOURS", COLOURS)


def stands_out(page, scheme):
    equal(page.evaluate(CONTRAST), [], f"texts with a contrast below 4.5, {scheme}")
    equal(page.evaluate(GRAPHICS), [], f"graphics with a contrast below 3, {scheme}")


def in_every_scheme(page):
    """Light and dark, and both where the reader forces the colours; what is looked at is on the page already."""
    for colours in ["none", "active"]:
        for scheme in ["light", "dark"]:
            page.emulate_media(color_scheme=scheme, forced_colors=colours)
            yield scheme if colours == "none" else f"{scheme}, forced colours"


def is_narrow_enough(page, scheme):
    for width in [320, 768, 1440]:
        page.set_viewport_size({"width": width, "height": 900})
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{scheme}, {width}: scrolls to {wide}"


@check
def readable_in_every_scheme_and_width(playwright):
    with still(of_every_look(dump(60))) as running, Browser(playwright) as browser:
        page = browser.page
        page.goto(running.url)
        page.goto(f"{running.origin}/?node=default-00017&without=PodDoNotDisrupt:Pod/shop/web-00017-0")
        equal(page.locator("#detail [aria-checked=true]").count(), 1, "switches that are on")
        for scheme in in_every_scheme(page):
            stands_out(page, scheme)
            is_narrow_enough(page, scheme)
        page.keyboard.press("?")
        until(page, "document.querySelector('#keys').open")
        for scheme in in_every_scheme(page):
            stands_out(page, f"{scheme}, the keys")
        # A what-if that cannot be asked.
        page.goto(f"{running.origin}/?without=x")
        page.wait_for_selector("#whatif .bad")
        for scheme in in_every_scheme(page):
            stands_out(page, f"{scheme}, a bad what-if")
        page.emulate_media(reduced_motion="reduce")
        moving = page.evaluate("document.getAnimations().length + [...document.querySelectorAll('*')].filter((one) => parseFloat(getComputedStyle(one).transitionDuration) > 0).length")
        equal(moving, 0, "what moves although it should not")


@check
def what_is_amiss_is_readable(playwright):
    """What is said of a box among thousands, and that what is shown is not up to date."""
    with still(dump(900, pods_per_node=2)) as running, Browser(playwright) as browser:
        page = browser.page
        page.goto(running.url)
        page.goto(f"{running.origin}/")
        live(page)
        frame = page.locator("#map").bounding_box()
        page.mouse.move(frame["x"] + 300, frame["y"] + 200)
        until(page, "!document.querySelector('#tip').hidden")
        for scheme in in_every_scheme(page):
            # The boxes are few shapes there, under each of which all others would be sought.
            equal(page.evaluate(CONTRAST.replace("'body *'", "'#tip, #tip *'")), [], f"texts of a box with a contrast below 4.5, {scheme}")
    with Api(dump(20)) as api, Running("web", "--kubeconfig", str(api.kubeconfig)) as running, Browser(playwright) as browser:
        page = browser.page
        running.wait("nodes", lambda view: view["header"]["nodes"] == 20)
        page.goto(running.url)
        live(page)
        api.is_broken = True
        until_true(page, "it is told that the cluster does not answer", lambda: "not up to date since" in running.get("/"), timeout=60000)
        page.goto(f"{running.origin}/")
        for scheme in in_every_scheme(page):
            stands_out(page, f"{scheme}, not up to date")


def of_every_look(world):
    """The first nodes of a dump in every state that the page draws."""
    of = lambda kind: [item for item in world["items"] if item["kind"] == kind]
    nodes, claims = of("Node"), {item["metadata"]["name"]: item for item in of("NodeClaim")}
    leaving, broken, coming, unmanaged = nodes[:4]
    claims[leaving["metadata"]["name"]]["metadata"].update(deletionTimestamp="2026-03-02T11:59:00Z", finalizers=["karpenter.sh/termination"])
    broken["status"]["conditions"][0]["status"] = "False"
    status = claims[coming["metadata"]["name"]]["status"]
    status["conditions"] = [one for one in status["conditions"] if one["type"] == "Launched"]
    del status["nodeName"]
    for key in [key for key in unmanaged["metadata"]["labels"] if key.startswith("karpenter.sh/")]:
        del unmanaged["metadata"]["labels"][key]
    gone = {coming["metadata"]["name"]}
    lost = lambda item: item.get("spec", {}).get("nodeName") in gone or (item["kind"] == "Node" and item is coming) or (item["kind"] == "NodeClaim" and item is claims[unmanaged["metadata"]["name"]])
    world["items"] = [item for item in world["items"] if not lost(item)]
    return world


def shades(picture, box):
    """How often each of sixteen shades of grey occurs in a rectangle, as shares."""
    grey = picture.convert("L").crop((int(box["x"]) + 2, int(box["y"]) + 2, int(box["x"] + box["width"]) - 2, int(box["y"] + box["height"]) - 2))
    counts = grey.histogram()
    total = sum(counts)
    return [sum(counts[first : first + 16]) / total for first in range(0, 256, 16)]


def of_no_verdict(world):
    """The same where something could not be read on which verdicts depend."""
    world = copy.deepcopy(world)
    world["items"].append({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "odd", "namespace": "shop"}, "spec": {"selector": "none"}})
    return world


def grey(page):
    from PIL import Image

    return Image.open(io.BytesIO(page.screenshot(full_page=True)))


HIDE = "document.querySelectorAll('#map .pattern').forEach((one) => one.setAttribute('visibility', 'hidden'))"


def apart(left, right):
    return sum(abs(one - other) for one, other in zip(left, right))


def looks_apart(page, what):
    """Swatches of the legend differ from each other in shades of grey; returns what they are of."""
    picture = grey(page)
    seen = [(one.get_attribute("class"), shades(picture, one.bounding_box())) for one in page.locator("#boxes .legend .swatch").all()]
    for index, (name, left) in enumerate(seen):
        for other, right in seen[:index]:
            assert apart(left, right) > 0.1, f"{what}: {name} and {other} look alike ({apart(left, right):.3f})"
    return {name for name, _ in seen}


def marks_boxes(page, what):
    """One box of each look but the plainest bears its own pattern, and that is to be seen there."""
    boxes = {}
    for one in page.locator("#map a.node:has(.pattern)").all():
        boxes.setdefault(one.get_attribute("class").split()[1], one)
    frames = {look: one.locator(".room").bounding_box() for look, one in boxes.items()}
    fills = {one.locator(".pattern").get_attribute("fill") for one in boxes.values()}
    equal(fills, {f"url(#p-{look})" for look in boxes}, f"{what}: patterns")
    before = grey(page)
    page.evaluate(HIDE)
    after = grey(page)
    for look, frame in frames.items():
        difference = apart(shades(before, frame), shades(after, frame))
        assert difference > 0.05, f"{what}: the pattern of {look} is not to be seen on its box ({difference:.3f})"
    return set(boxes)


@check
def verdicts_are_told_without_colour(playwright):
    """In shades of grey, and with the user's forced colours: by patterns, in the legend and on the boxes."""
    world = of_every_look(dump(60))
    swatches, boxes = set(), set()
    for shown in [world, of_no_verdict(world)]:
        with still(shown) as running, Browser(playwright, device_scale_factor=1) as browser:
            page = browser.page
            page.goto(running.url)
            for scheme in in_every_scheme(page):
                page.reload()
                swatches |= looks_apart(page, scheme)
                boxes |= marks_boxes(page, scheme)
    equal(len(swatches), 7, f"looks in the legend, {sorted(swatches)}")
    equal(boxes, {"go", "leaving", "coming", "broken", "unknown", "unmanaged"}, "looks of boxes with a pattern")
