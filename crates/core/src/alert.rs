//! Price alerts: which of many rules a trade's price fires.
//!
//! A rule asks for a price in one market, at or above a level ([`Condition::Above`]) or at or below it ([`Condition::Below`]). It is
//! **not** a crossing: a rule whose level is passed already when it is made fires with the next trade. Trades from before the rule was
//! made do not count.

use std::collections::BTreeMap;

use crate::ids::{MarketId, Timestamp};
use crate::money::Price;
use crate::order::coded;

coded!(
    /// On which side of its level a price fires a rule.
    Condition {
        /// At the level or above it.
        Above = 0, "ABOVE";
        /// At the level or below it.
        Below = 1, "BELOW";
    }
);

impl Condition {
    /// Whether a price satisfies the condition for a level.
    pub fn holds(self, level: Price, price: Price) -> bool {
        match self {
            Condition::Above => price >= level,
            Condition::Below => price <= level,
        }
    }
}

/// One rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its number, unique among all rules.
    pub id: u64,
    /// The market whose trades it watches.
    pub market: MarketId,
    /// Which side.
    pub condition: Condition,
    /// The level.
    pub level: Price,
    /// Trades before this time do not count.
    pub since: Timestamp,
}

/// Rules by level and number, with the time from which they count.
type Levels = BTreeMap<(Price, u64), Timestamp>;

#[derive(Clone, Debug, Default)]
struct MarketRules {
    above: Levels,
    below: Levels,
}

/// The armed rules, found by market and price: a trade costs the logarithm of the rules of its market, and what it fires.
#[derive(Clone, Debug, Default)]
pub struct AlertIndex {
    markets: BTreeMap<MarketId, MarketRules>,
    rules: BTreeMap<u64, Rule>,
}

impl AlertIndex {
    /// Arms a rule; one with the same number is replaced.
    pub fn insert(&mut self, rule: Rule) {
        self.remove(rule.id);
        self.rules.insert(rule.id, rule);
        let market = self.markets.entry(rule.market).or_default();
        market.side(rule.condition).insert((rule.level, rule.id), rule.since);
    }

    /// Disarms a rule; what it was, if it was armed.
    pub fn remove(&mut self, id: u64) -> Option<Rule> {
        let rule = self.rules.remove(&id)?;
        if let Some(market) = self.markets.get_mut(&rule.market) {
            market.side(rule.condition).remove(&(rule.level, id));
            if market.above.is_empty() && market.below.is_empty() {
                self.markets.remove(&rule.market);
            }
        }
        Some(rule)
    }

    /// Disarms every rule of a market.
    pub fn remove_market(&mut self, market: MarketId) {
        if self.markets.remove(&market).is_some() {
            self.rules.retain(|_, rule| rule.market != market);
        }
    }

    /// Takes out the rules that a trade fires, and adds them to `out` by growing number.
    pub fn fire(&mut self, market: MarketId, price: Price, time: Timestamp, out: &mut Vec<Rule>) {
        let Some(rules) = self.markets.get(&market) else { return };
        let from = out.len();
        let above = rules.above.range(..=(price, u64::MAX));
        let below = rules.below.range((price, 0)..);
        let due = above.chain(below).filter(|(_, since)| **since <= time).map(|((_, id), _)| *id);
        out.extend(due.filter_map(|id| self.rules.get(&id).copied()));
        out[from..].sort_unstable_by_key(|rule| rule.id);
        for rule in &out[from..] {
            self.remove(rule.id);
        }
    }

    /// How many rules are armed.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether none is armed.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}

impl MarketRules {
    fn side(&mut self, condition: Condition) -> &mut Levels {
        match condition {
            Condition::Above => &mut self.above,
            Condition::Below => &mut self.below,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Arm(Rule),
        Disarm(u64),
        DisarmMarket(MarketId),
        Trade(MarketId, Price, Timestamp),
    }

    fn step() -> impl Strategy<Value = Step> {
        let market = (0u16..3).prop_map(MarketId);
        let price = (1i64..12).prop_map(Price);
        let time = (0i64..6).prop_map(Timestamp);
        let condition = prop_oneof![Just(Condition::Above), Just(Condition::Below)];
        let rule = (0u64..12, market.clone(), condition, price.clone(), time.clone())
            .prop_map(|(id, market, condition, level, since)| Rule { id, market, condition, level, since });
        prop_oneof![
            6 => rule.prop_map(Step::Arm),
            2 => (0u64..12).prop_map(Step::Disarm),
            1 => market.clone().prop_map(Step::DisarmMarket),
            6 => (market, price, time).prop_map(|(m, p, t)| Step::Trade(m, p, t)),
        ]
    }

    proptest! {
        #[test]
        fn the_index_fires_what_a_scan_fires(steps in prop::collection::vec(step(), 0..120)) {
            let (mut index, mut naive) = (AlertIndex::default(), BTreeMap::<u64, Rule>::new());
            for step in steps {
                match step {
                    Step::Arm(rule) => {
                        index.insert(rule);
                        naive.insert(rule.id, rule);
                    }
                    Step::Disarm(id) => prop_assert_eq!(index.remove(id), naive.remove(&id)),
                    Step::DisarmMarket(market) => {
                        index.remove_market(market);
                        naive.retain(|_, rule| rule.market != market);
                    }
                    Step::Trade(market, price, time) => {
                        let mut fired = Vec::new();
                        index.fire(market, price, time, &mut fired);
                        let due = |rule: &&Rule| {
                            rule.market == market && rule.since <= time && rule.condition.holds(rule.level, price)
                        };
                        let expected: Vec<Rule> = naive.values().filter(due).copied().collect();
                        for rule in &expected {
                            naive.remove(&rule.id);
                        }
                        prop_assert_eq!(fired, expected);
                    }
                }
                prop_assert_eq!(index.len(), naive.len());
                prop_assert_eq!(index.markets.values().map(|m| m.above.len() + m.below.len()).sum::<usize>(), naive.len());
            }
        }
    }
}
