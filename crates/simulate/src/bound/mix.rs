//! The cheapest mix of fractional instances that covers a demand, by the vertices of its dual.
//!
//! Owns a linear programme with at most three resources: minimise what a mix costs that covers the demand, limited offers at most as often as they exist. Its dual has as
//! many variables as resources, so its vertices are listed once for a list of offers, and the optimum for any demand is a maximum over them: no solver, about a
//! microsecond. It knows neither instance types nor pods.

/// Resources that one [`Mix`] looks at.
pub const RESOURCES: usize = 3;

/// An amount of each resource, in any units that offers and demands share.
pub type Amounts = [f64; RESOURCES];

/// An available kind of instance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Offer {
    /// What pods can use of it.
    pub capacity: Amounts,
    /// Price per hour.
    pub price: f64,
    /// How many there are, for reservations.
    pub limit: Option<u32>,
}

/// The vertices of one dual programme.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Mix {
    vertices: Vec<Vertex>,
}

/// Prices of the resources that no unlimited offer undercuts, and what limited ones earn at these prices.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Vertex {
    prices: Amounts,
    earned: f64,
}

/// `normal · prices = offset`; the half-space below it is allowed unless the offer is limited.
#[derive(Debug, Clone, Copy)]
struct Plane {
    normal: Amounts,
    offset: f64,
    limit: Option<u32>,
}

/// Rounding errors up to this, relative to the numbers compared, decide nothing.
const TOLERANCE: f64 = 1e-9;

fn product(left: &Amounts, right: &Amounts) -> f64 {
    left[0] * right[0] + left[1] * right[1] + left[2] * right[2]
}

fn cross(left: &Amounts, right: &Amounts) -> Amounts {
    [
        left[1] * right[2] - left[2] * right[1],
        left[2] * right[0] - left[0] * right[2],
        left[0] * right[1] - left[1] * right[0],
    ]
}

impl Mix {
    /// Lists the vertices. Takes time in the cube of the number of offers that are not dominated.
    pub fn of(offers: &[Offer]) -> Self {
        // Scales under which offers are of the order of one keep tolerances meaningful.
        let scale: Amounts = std::array::from_fn(|index| {
            let largest = offers
                .iter()
                .map(|offer| offer.capacity[index])
                .fold(0.0, f64::max);
            if largest > 0.0 { largest } else { 1.0 }
        });
        let mut offers: Vec<Offer> = offers
            .iter()
            .map(|offer| Offer {
                capacity: std::array::from_fn(|index| offer.capacity[index].max(0.0) / scale[index]),
                price: offer.price.max(0.0),
                ..*offer
            })
            .filter(|offer| offer.capacity.iter().any(|amount| *amount > 0.0) && offer.limit != Some(0))
            .collect();
        // What can be had for nothing without a limit is worth nothing.
        let free: Vec<Amounts> = offers
            .iter()
            .filter(|offer| offer.price == 0.0 && offer.limit.is_none())
            .map(|offer| offer.capacity)
            .collect();
        for offer in &mut offers {
            for capacity in &free {
                for (own, free) in offer.capacity.iter_mut().zip(capacity) {
                    if *free > 0.0 {
                        *own = 0.0;
                    }
                }
            }
        }
        offers.retain(|offer| offer.capacity.iter().any(|amount| *amount > 0.0));
        // Prices are compared with each other only, so their scale is free as well.
        let dearest = offers.iter().map(|offer| offer.price).fold(0.0, f64::max);
        let unit = if dearest > 0.0 { dearest } else { 1.0 };
        let mut planes: Vec<Plane> = offers
            .iter()
            .map(|offer| Plane {
                normal: offer.capacity,
                offset: offer.price / unit,
                limit: offer.limit,
            })
            .collect();
        forget_implied(&mut planes);
        let mut vertices = corners(&planes);
        for vertex in &mut vertices {
            for (price, scale) in vertex.prices.iter_mut().zip(&scale) {
                *price *= unit / scale;
            }
            vertex.earned *= unit;
        }
        forget_dominated(&mut vertices);
        Self { vertices }
    }

    /// The least price per hour of a demand, in the unit of the offers' prices. What no offer has any of counts as nothing.
    pub fn at(&self, demand: &Amounts) -> f64 {
        self.vertices
            .iter()
            .map(|vertex| product(&vertex.prices, demand) - vertex.earned)
            .fold(0.0, f64::max)
    }

    /// Number of vertices.
    pub fn len(&self) -> usize {
        self.vertices.len()
    }

    /// True when every demand is free.
    pub fn is_empty(&self) -> bool {
        self.vertices.is_empty()
    }
}

/// Drops unlimited offers of which another one has, for each dollar, at least as much of everything.
fn forget_implied(planes: &mut Vec<Plane>) {
    let implies = |one: &Plane, other: &Plane| {
        let mut both = one.normal.iter().zip(&other.normal);
        both.all(|(one_has, other_has)| one_has * other.offset >= other_has * one.offset)
    };
    let mut kept: Vec<Plane> = Vec::new();
    for plane in planes.drain(..) {
        if plane.limit.is_some() {
            kept.push(plane);
        } else if !kept.iter().any(|one| one.limit.is_none() && implies(one, &plane)) {
            kept.retain(|one| one.limit.is_some() || !implies(&plane, one));
            kept.push(plane);
        }
    }
    *planes = kept;
}

/// All points at which three planes meet inside the allowed region: two make a line, which the others cut.
fn corners(offers: &[Plane]) -> Vec<Vertex> {
    let axes = (0..RESOURCES).map(|index| Plane {
        normal: std::array::from_fn(|other| if other == index { 1.0 } else { 0.0 }),
        offset: 0.0,
        limit: None,
    });
    let planes: Vec<Plane> = axes.chain(offers.iter().copied()).collect();
    let mut found: Vec<Vertex> = Vec::new();
    for (index, one) in planes.iter().enumerate() {
        for other in &planes[index + 1..] {
            let direction = cross(&one.normal, &other.normal);
            let square = product(&direction, &direction);
            let sizes = product(&one.normal, &one.normal) * product(&other.normal, &other.normal);
            // Parallel planes have no line; where they are one plane, other pairs find its points.
            if square <= TOLERANCE * TOLERANCE * sizes {
                continue;
            }
            let (left, right) = (cross(&other.normal, &direction), cross(&direction, &one.normal));
            let origin: Amounts =
                std::array::from_fn(|axis| (one.offset * left[axis] + other.offset * right[axis]) / square);
            let length = square.sqrt();
            let direction = direction.map(|part| part / length);
            for at in cuts(&origin, &direction, &planes) {
                let point: Amounts = std::array::from_fn(|axis| origin[axis] + at * direction[axis]);
                let vertex = allowed(point, offers);
                if !found.contains(&vertex) {
                    found.push(vertex);
                }
            }
        }
    }
    found
}

/// Where on a line corners lie: the ends of what the unlimited offers leave of it, and between them the crossings with limited ones.
fn cuts(origin: &Amounts, direction: &Amounts, planes: &[Plane]) -> Vec<f64> {
    let (mut from, mut until) = (f64::NEG_INFINITY, f64::INFINITY);
    let mut crossings = Vec::new();
    for (index, plane) in planes.iter().enumerate() {
        // Axes bound from below, offers from above.
        let sign = if index < RESOURCES { -1.0 } else { 1.0 };
        let slope = sign * product(&plane.normal, direction);
        let room = sign * (plane.offset - product(&plane.normal, origin));
        let size = product(&plane.normal, &plane.normal).sqrt();
        if slope.abs() <= TOLERANCE * size {
            if plane.limit.is_none() && room < -TOLERANCE * size.max(plane.offset) {
                return Vec::new();
            }
            continue;
        }
        let at = room / slope;
        match (plane.limit, slope > 0.0) {
            (Some(_), _) => crossings.push(at),
            (None, true) => until = until.min(at),
            (None, false) => from = from.max(at),
        }
    }
    let slack = TOLERANCE * (1.0 + from.abs().min(until.abs()));
    if from > until + slack {
        return Vec::new();
    }
    crossings.retain(|at| from < *at && *at < until);
    crossings.extend([from, until].into_iter().filter(|at| at.is_finite()));
    crossings
}

/// The point, moved by as little as rounding made it overstep: every allowed point gives a bound that is true.
fn allowed(point: Amounts, offers: &[Plane]) -> Vertex {
    let mut prices = point.map(|price| price.max(0.0));
    let excess = offers
        .iter()
        .filter(|plane| plane.limit.is_none())
        .map(|plane| product(&plane.normal, &prices) / plane.offset)
        .fold(1.0, f64::max);
    prices = prices.map(|price| price / excess);
    let earned = offers
        .iter()
        .filter_map(|plane| {
            let gain = product(&plane.normal, &prices) - plane.offset;
            Some(f64::from(plane.limit?) * gain.max(0.0))
        })
        .sum();
    Vertex { prices, earned }
}

/// Drops vertices of which another one is as high in each price and earns no more.
fn forget_dominated(vertices: &mut Vec<Vertex>) {
    let beats = |one: &Vertex, other: &Vertex| {
        one.earned <= other.earned
            && one
                .prices
                .iter()
                .zip(&other.prices)
                .all(|(one, other)| one >= other)
    };
    let mut kept: Vec<Vertex> = Vec::new();
    for vertex in vertices.drain(..) {
        if !kept.iter().any(|one| beats(one, &vertex)) {
            kept.retain(|one| !beats(&vertex, one));
            kept.push(vertex);
        }
    }
    kept.retain(|vertex| vertex.prices.iter().any(|price| *price > 0.0));
    *vertices = kept;
}
