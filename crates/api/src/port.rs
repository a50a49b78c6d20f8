//! The way of alerts' orders to an engine in this process.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

use hoga_core::command::Body;
use hoga_core::event::{Event, Execution};
use hoga_core::ids::{AccountId, ClientId, MarketId, OrderId, Timestamp};
use hoga_core::order::{NewOrder, OrderRef};
use hoga_engine::{EngineHandle, Lost, Reply, ReplySink, ReplyTo};
use hoga_store::{Answer, CommandPort, Group, Stores, Unanswered};

/// How long orders of the past may take to reach the read model in which they are looked up.
const WAIT: Duration = Duration::from_secs(5);

/// An engine in this process, and the read model of its orders.
pub struct EnginePort {
    engine: EngineHandle,
    stores: Weak<Stores>,
}

impl EnginePort {
    /// To an engine; orders that are over are looked up in the stores.
    pub fn new(engine: EngineHandle, stores: &Arc<Stores>) -> EnginePort {
        EnginePort { engine, stores: Arc::downgrade(stores) }
    }
}

struct One(SyncSender<Result<Answer, Lost>>);

impl ReplySink for One {
    fn reply(&self, _tag: u64, reply: &Reply<'_>) {
        let placed = reply.events.iter().find_map(|record| match &record.event {
            Event::Order(event) if event.execution == Execution::New => Some(event.order.id),
            _ => None,
        });
        let answer = match reply.outcome {
            Err(reason) => Answer::Refused(reason),
            Ok(()) => Answer::Placed(placed.unwrap_or(OrderId(0))),
        };
        let _ = self.0.try_send(Ok(answer)); // room for the one answer; its reader may have gone
    }

    fn lost(&self, _tag: u64, why: Lost) {
        let _ = self.0.try_send(Err(why));
    }
}

impl CommandPort for EnginePort {
    fn place(&self, order: &NewOrder) -> Result<Answer, Unanswered> {
        let (sender, receiver) = sync_channel(1);
        let reply = ReplyTo::new(Arc::new(One(sender)), 0);
        self.engine
            .submit(Body::Place(*order), Timestamp(0), reply)
            .map_err(|error| Unanswered(error.to_string()))?;
        // Without a limit: the engine answers each command or says that it is lost, and until then it is under way.
        match receiver.recv() {
            Ok(Ok(answer)) => Ok(answer),
            _ => Err(Unanswered("the engine has stopped".to_owned())),
        }
    }

    fn find(
        &self,
        account: AccountId,
        market: MarketId,
        client_id: &ClientId,
    ) -> Result<Option<OrderId>, Unanswered> {
        let by = OrderRef::Client(*client_id);
        let ticket = self.engine.query(move |exchange| exchange.order(account, market, &by).map(|o| o.id));
        let open = ticket.and_then(|ticket| ticket.wait(WAIT)).map_err(|e| Unanswered(e.to_string()))?;
        if open.is_some() {
            return Ok(open);
        }
        let stores =
            self.stores.upgrade().ok_or_else(|| Unanswered("the read models have stopped".into()))?;
        if !stores.wait_current(Group::Orders, WAIT) {
            return Err(Unanswered("order-projection is behind".to_owned()));
        }
        let past = stores.orders().order(account, market, &by).map_err(|e| Unanswered(e.to_string()))?;
        Ok(past.map(|order| order.id))
    }
}
