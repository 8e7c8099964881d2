//! Which values of a label the nodes of a NodePool can have: the domains that topology counts in (P §6.8).
//!
//! What is for sale now is not asked: a zone that is sold out for a while is one all the same. One in which nothing of what is asked for is ever sold is none,
//! whatever the types say of themselves. Complexity: O(distinct requirements of the types × their values × distinct requirements of offerings).

use super::{Offer, Template};
use crate::algebra::Algebra;
use spokeshave_model::{Requirement, Requirements};
use std::collections::BTreeSet;

impl Template {
    /// The concrete values a node of this template can have for a label key, whichever of all types it is of: the domain universe of P §6.8. Where the types
    /// leave a key to their offerings, the offerings' values count.
    pub(crate) fn domains(&self, key: &str, algebra: &Algebra<'_>) -> BTreeSet<String> {
        let own = algebra.get(self.set).get(key);
        let mut found: BTreeSet<String> = BTreeSet::new();
        let mut collect = |declared: &Requirement| {
            let both = own.intersection(declared);
            if !both.is_complement() {
                found.extend(both.values().iter().cloned());
            }
        };
        if let Some(index) = self.index.keys.get(key) {
            index.distinct.iter().for_each(|(declared, _)| collect(declared));
        } else {
            let offered = self.offered();
            let declared = offered.filter_map(|offer| self.index.requirements(offer).find(key));
            declared.for_each(&mut collect);
        }
        if !own.is_complement() {
            found.extend(own.values().iter().cloned());
        }
        found
    }

    /// What is sold, now or at other times.
    fn offered(&self) -> impl Iterator<Item = &Offer> {
        self.index.offers.iter().chain(&self.index.sold_out)
    }

    /// Calls `each` with those of these values that a node can have which the template allows and which is asked for, by one of several requirement sets or by
    /// none; with some more than once.
    pub(crate) fn each_domain_asked_for(
        &self,
        key: &str,
        asked: &[Requirements],
        algebra: &Algebra<'_>,
        mut each: impl FnMut(&str),
    ) {
        let own = algebra.get(self.set);
        if asked.is_empty() {
            self.each_domain_of(key, own, algebra, &mut each);
        }
        for one in asked {
            if own.compatible(one, algebra.well_known()).is_ok() && !self.lacks_label(one, algebra) {
                let mut both = own.clone();
                both.add_all(one);
                self.each_domain_of(key, &both, algebra, &mut each);
            }
        }
    }

    /// The same for the nodes that meet all of these requirements.
    fn each_domain_of(
        &self,
        key: &str,
        wanted: &Requirements,
        algebra: &Algebra<'_>,
        each: &mut impl FnMut(&str),
    ) {
        let types = self.matching_types(wanted);
        let values = wanted.get(key);
        let fits = |offer: &&Offer| {
            let offered = self.index.requirements(offer);
            !offer.members.is_disjoint(&types) && wanted.compatible(offered, algebra.well_known()).is_ok()
        };
        // Each with what it says of the key.
        let fitting = self.offered().filter(fits);
        let fitting = fitting.map(|offer| (offer, self.index.requirements(offer).find(key)));
        let fitting: Vec<(&Offer, Option<&Requirement>)> = fitting.collect();
        let mut tell = |declared: &Requirement, is_sold: &dyn Fn(&str) -> bool| {
            let both = values.intersection(declared);
            if !both.is_complement() {
                let sold = both.values().iter().filter(|value| is_sold(value.as_str()));
                sold.for_each(|value| each(value.as_str()));
            }
        };
        let is_left_open = if let Some(index) = self.index.keys.get(key) {
            for (declared, members) in &index.distinct {
                let mut among = members.clone();
                among.intersect(&types);
                let is_sold = |value: &str| {
                    let mut offers = fitting.iter();
                    offers.any(|(offer, offered)| {
                        offered.is_none_or(|offered| offered.has(value)) && !offer.members.is_disjoint(&among)
                    })
                };
                tell(declared, &is_sold);
            }
            !index.undefined.is_disjoint(&types)
        } else {
            let declared = fitting.iter().filter_map(|(_, offered)| *offered);
            declared
                .clone()
                .for_each(|declared| tell(declared, &|_: &str| true));
            declared.count() == 0
        };
        // The label is the NodePool's own.
        if is_left_open && !values.is_complement() {
            values.values().iter().for_each(|value| each(value.as_str()));
        }
    }
}
