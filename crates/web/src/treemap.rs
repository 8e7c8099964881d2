//! Areas as rectangles in the order that they are given, in strips, cut so that boxes are close to square. An order that stays keeps boxes
//! where they are.

/// A rectangle.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rect {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

impl Rect {
    /// The same without a margin on each side; never turned inside out.
    pub(crate) fn inset(self, by: f64) -> Self {
        let by_x = by.min(self.width / 2.0);
        let by_y = by.min(self.height / 2.0);
        Rect {
            x: self.x + by_x,
            y: self.y + by_y,
            width: self.width - 2.0 * by_x,
            height: self.height - 2.0 * by_y,
        }
    }

    /// The same without its uppermost part.
    pub(crate) fn below(self, by: f64) -> Self {
        let by = by.min(self.height);
        Rect {
            y: self.y + by,
            height: self.height - by,
            ..self
        }
    }

    pub(crate) fn contains(self, x: f64, y: f64) -> bool {
        (self.x..self.x + self.width).contains(&x) && (self.y..self.y + self.height).contains(&y)
    }
}

/// Fills `room` with one rectangle for each weight, in order, with areas in proportion. Weights that are no positive number count as the least that is one.
pub(crate) fn strips(weights: &[f64], room: Rect) -> Vec<Rect> {
    let is_some = |weight: &f64| weight.is_finite() && *weight > 0.0;
    let least = weights
        .iter()
        .copied()
        .filter(is_some)
        .fold(f64::INFINITY, f64::min);
    let least = if least.is_finite() { least } else { 1.0 };
    let weights: Vec<f64> = weights
        .iter()
        .map(|weight| if is_some(weight) { *weight } else { least })
        .collect();
    let sum: f64 = weights.iter().sum();
    if weights.is_empty() || room.width <= 0.0 || room.height <= 0.0 {
        return vec![
            Rect {
                width: 0.0,
                height: 0.0,
                ..room
            };
            weights.len()
        ];
    }
    let scale = room.width * room.height / sum;
    let mut out = Vec::with_capacity(weights.len());
    let (mut begin, mut y) = (0, room.y);
    for end in cuts(&weights, room.width, scale) {
        let area: f64 = weights[begin..end].iter().sum::<f64>() * scale;
        let height = area / room.width;
        let mut x = room.x;
        for weight in &weights[begin..end] {
            let width = weight * scale / height;
            out.push(Rect { x, y, width, height });
            x += width;
        }
        y += height;
        begin = end;
    }
    out
}

/// Up to so many boxes the best way to cut the row into strips is found; of more, one that is good enough.
const FEW: usize = 120;

/// Where each strip ends.
fn cuts(weights: &[f64], width: f64, scale: f64) -> Vec<usize> {
    if weights.len() <= FEW {
        best_cuts(weights, width, scale)
    } else {
        quick_cuts(weights, width, scale)
    }
}

/// The cuts with the least sum of aspects: the best for the first so many boxes, one after another.
fn best_cuts(weights: &[f64], width: f64, scale: f64) -> Vec<usize> {
    let mut best: Vec<(f64, usize)> = vec![(0.0, 0)];
    for end in 1..=weights.len() {
        let cost = |begin: usize| best[begin].0 + sum_of_aspects(&weights[begin..end], width, scale);
        let costs = (0..end).map(|begin| (cost(begin), begin));
        let least = costs.min_by(|left, right| left.0.total_cmp(&right.0));
        best.push(least.unwrap_or_default());
    }
    let mut ends = Vec::new();
    let mut end = weights.len();
    while end > 0 {
        ends.push(end);
        end = best[end].1;
    }
    ends.reverse();
    ends
}

/// A strip is closed before its boxes get flatter; what is left at the end joins the last strip where that is better.
fn quick_cuts(weights: &[f64], width: f64, scale: f64) -> Vec<usize> {
    let mean =
        |begin: usize, end: usize| sum_of_aspects(&weights[begin..end], width, scale) / (end - begin) as f64;
    let mut ends = Vec::new();
    let mut begin = 0;
    while begin < weights.len() {
        let mut end = begin + 1;
        while end < weights.len() && mean(begin, end + 1) <= mean(begin, end) {
            end += 1;
        }
        ends.push(end);
        begin = end;
    }
    if let [.., before, last, end] = ends[..] {
        let apart = sum_of_aspects(&weights[before..last], width, scale)
            + sum_of_aspects(&weights[last..end], width, scale);
        if sum_of_aspects(&weights[before..end], width, scale) < apart {
            ends.remove(ends.len() - 2);
        }
    }
    ends
}

/// How far from square the boxes of a strip are, together.
fn sum_of_aspects(weights: &[f64], width: f64, scale: f64) -> f64 {
    let height = weights.iter().sum::<f64>() * scale / width;
    let aspects = weights.iter().map(|weight| {
        let wide = weight * scale / height;
        (wide / height).max(height / wide)
    });
    aspects.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Rect = Rect {
        x: 10.0,
        y: 20.0,
        width: 1000.0,
        height: 400.0,
    };

    #[test]
    fn areas_are_in_proportion_inside_and_apart() {
        for count in [1, 2, 7, 100, 1000] {
            let weights: Vec<f64> = (0..count).map(|index| f64::from(1 + index * 37 % 11)).collect();
            let rects = strips(&weights, ROOM);
            let sum: f64 = weights.iter().sum();
            for (rect, weight) in rects.iter().zip(&weights) {
                let area = rect.width * rect.height;
                assert!(
                    (area - weight / sum * 400_000.0).abs() < 0.01,
                    "{count}: {rect:?}"
                );
                assert!(rect.x >= 9.999 && rect.x + rect.width <= 1010.001);
                assert!(rect.y >= 19.999 && rect.y + rect.height <= 420.001);
            }
            for (index, one) in rects.iter().enumerate() {
                let middle = (one.x + one.width / 2.0, one.y + one.height / 2.0);
                let inside = rects.iter().position(|other| other.contains(middle.0, middle.1));
                assert_eq!(inside, Some(index));
            }
        }
    }

    #[test]
    fn equal_boxes_are_close_to_square_and_stay_where_they_are() {
        let rects = strips(&[1.0; 200], ROOM);
        let flat = rects
            .iter()
            .filter(|rect| (rect.width / rect.height).max(rect.height / rect.width) > 2.5);
        assert!(flat.count() <= 20, "the last strip may be");
        assert_eq!(strips(&[1.0; 200], ROOM), rects);
    }

    #[test]
    fn nothing_and_nonsense_fill_no_room() {
        assert!(strips(&[], ROOM).is_empty());
        let rects = strips(&[f64::NAN, -1.0, 0.0, 4.0], ROOM);
        assert!(
            rects
                .iter()
                .all(|rect| (rect.width * rect.height - 100_000.0).abs() < 0.01)
        );
        let none = Rect { height: 0.0, ..ROOM };
        assert!(
            strips(&[1.0, 2.0], none)
                .iter()
                .all(|rect| rect.width.abs() < 0.01)
        );
    }
}
