//! The catalogue: which assets and markets exist, by number and by name. Read by every request, changed a few times a day.

use std::sync::{Arc, RwLock};

use hoga_core::event::{Event, EventRecord};
use hoga_core::exchange::Exchange;
use hoga_core::ids::{AssetId, MarketId};
use hoga_core::instrument::{Instrument, Name, TradingState};
use hoga_engine::Subscriber;
use rustc_hash::FxHashMap;

/// One state of the catalogue.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    assets: Vec<Name>,
    instruments: Vec<Instrument>,
    by_symbol: FxHashMap<Name, MarketId>,
}

impl Catalog {
    /// All assets; the index is the number.
    pub fn assets(&self) -> &[Name] {
        &self.assets
    }

    /// All markets; the index is the number. `state` is the current one.
    pub fn instruments(&self) -> &[Instrument] {
        &self.instruments
    }

    /// A market by number.
    pub fn instrument(&self, market: MarketId) -> Option<&Instrument> {
        self.instruments.get(usize::from(market.0))
    }

    /// A market by symbol.
    pub fn find(&self, symbol: &str) -> Option<&Instrument> {
        self.instrument(*self.by_symbol.get(&Name::new(symbol)?)?)
    }

    /// A symbol by number; empty when there is none.
    pub fn symbol(&self, market: MarketId) -> &str {
        self.instrument(market).map_or("", |i| i.symbol.as_str())
    }

    /// An asset's name; empty when there is none.
    pub fn asset(&self, asset: AssetId) -> &str {
        self.assets.get(usize::from(asset.0)).map_or("", Name::as_str)
    }

    /// An asset by name.
    pub fn find_asset(&self, name: &str) -> Option<AssetId> {
        let name = Name::new(name)?;
        self.assets.iter().position(|a| *a == name).and_then(|i| u16::try_from(i).ok()).map(AssetId)
    }

    fn set_asset(&mut self, id: AssetId, name: Name) {
        let at = usize::from(id.0);
        if self.assets.len() <= at {
            self.assets.resize(at + 1, Name::default());
        }
        self.assets[at] = name;
    }

    fn set_instrument(&mut self, instrument: Instrument) {
        let at = usize::from(instrument.id.0);
        if at < self.instruments.len() {
            self.instruments[at] = instrument;
        } else if at == self.instruments.len() {
            self.instruments.push(instrument);
        } else {
            // Events come in order and numbers have no holes; an event from before the first load has nothing to attach to yet.
            return;
        }
        self.by_symbol.insert(instrument.symbol, instrument.id);
    }

    fn set_state(&mut self, market: MarketId, state: TradingState) {
        if let Some(instrument) = self.instruments.get_mut(usize::from(market.0)) {
            instrument.state = state;
        }
    }
}

/// The current catalogue, shared by all connections.
#[derive(Clone, Debug, Default)]
pub struct SharedCatalog(Arc<RwLock<Arc<Catalog>>>);

impl SharedCatalog {
    /// The catalogue as it is now.
    pub fn current(&self) -> Arc<Catalog> {
        self.0.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Takes everything over from an exchange (at the start, on the thread that also delivers events).
    pub fn load(&self, exchange: &Exchange) {
        let mut catalog = Catalog { assets: exchange.assets().to_vec(), ..Catalog::default() };
        for instrument in exchange.instruments() {
            catalog.set_instrument(*instrument);
        }
        self.set(catalog);
    }

    /// Follows what happens after [`SharedCatalog::load`].
    pub fn apply(&self, events: &[EventRecord]) {
        let relevant = |e: &&EventRecord| {
            matches!(e.event, Event::AssetAdded { .. } | Event::InstrumentSet(_) | Event::StateSet { .. })
        };
        let mut changed: Option<Catalog> = None;
        for record in events.iter().filter(relevant) {
            let catalog = changed.get_or_insert_with(|| Catalog::clone(&self.current()));
            match record.event {
                Event::AssetAdded { id, name } => catalog.set_asset(id, name),
                Event::InstrumentSet(instrument) => catalog.set_instrument(instrument),
                Event::StateSet { market, state } => catalog.set_state(market, state),
                _ => {}
            }
        }
        if let Some(catalog) = changed {
            self.set(catalog);
        }
    }

    fn set(&self, catalog: Catalog) {
        *self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner) = Arc::new(catalog);
    }

    /// A subscriber for the engine that keeps this catalogue current.
    pub fn subscriber(&self) -> Box<dyn Subscriber> {
        Box::new(CatalogFeed(self.clone()))
    }
}

struct CatalogFeed(SharedCatalog);

impl Subscriber for CatalogFeed {
    fn on_start(&mut self, exchange: &Exchange) {
        self.0.load(exchange);
    }

    fn on_events(&mut self, events: &[EventRecord]) {
        self.0.apply(events);
    }
}
