//! Assets, markets, trading states and accounts.

use super::emit::Emitter;
use super::{Exchange, Flow, Market};
use crate::event::{Event, Reject};
use crate::ids::{AssetId, MarketId};
use crate::instrument::{Instrument, Name, TradingState};

impl Exchange {
    pub(super) fn create_account(&mut self, emit: &mut Emitter<'_>) -> Result<(), Reject> {
        let account = self.accounts.open().ok_or(Reject::InvalidDefinition)?;
        emit.emit(Event::AccountCreated { account });
        Ok(())
    }

    pub(super) fn add_asset(
        &mut self,
        id: AssetId,
        name: Name,
        emit: &mut Emitter<'_>,
    ) -> Result<(), Reject> {
        let fresh = name != Name::default() && !self.assets.contains(&name);
        // The last number stays free, so that the count fits too.
        if usize::from(id.0) != self.assets.len() || id.0 == u16::MAX || !fresh {
            return Err(Reject::InvalidDefinition);
        }
        self.assets.push(name);
        self.flows.push(Flow::default());
        emit.emit(Event::AssetAdded { id, name });
        Ok(())
    }

    /// Adds a market or replaces the rules of one. Orders that are open keep what they were accepted with. Tick and step can change only
    /// while the market has no open order, because price times quantity of an open order must stay exact.
    pub(super) fn set_instrument(&mut self, new: &Instrument, emit: &mut Emitter<'_>) -> Result<(), Reject> {
        let known = |asset: AssetId| usize::from(asset.0) < self.assets.len();
        if !new.check() || !known(new.base) || !known(new.quote) || new.state == TradingState::Auction {
            return Err(Reject::InvalidDefinition);
        }
        let at = usize::from(new.id.0);
        match self.instruments.get_mut(at) {
            Some(old) => {
                let market = &self.markets[at];
                let idle = market.book.is_empty() && market.stops.is_empty();
                let same = (old.symbol, old.base, old.quote) == (new.symbol, new.base, new.quote);
                let steps = (old.price_tick, old.lot_step) == (new.price_tick, new.lot_step);
                if !same || !(steps || idle) {
                    return Err(Reject::InvalidDefinition);
                }
                *old = *new;
            }
            None => {
                let taken = self.instruments.iter().any(|instrument| instrument.symbol == new.symbol);
                if at != self.instruments.len() || new.id.0 == u16::MAX || taken {
                    return Err(Reject::InvalidDefinition);
                }
                self.instruments.push(*new);
                self.markets.push(Market::new());
            }
        }
        emit.emit(Event::InstrumentSet(*new));
        Ok(())
    }

    /// Call auctions come later: that state is refused.
    pub(super) fn set_state(
        &mut self,
        market: MarketId,
        state: TradingState,
        emit: &mut Emitter<'_>,
    ) -> Result<(), Reject> {
        let at = self.market(market)?;
        if state == TradingState::Auction {
            return Err(Reject::InvalidDefinition);
        }
        self.instruments[at].state = state;
        emit.emit(Event::StateSet { market, state });
        Ok(())
    }
}
