//! The offsets of groups, without being a member: asked and set through the group's coordinator.
//!
//! Each group has a client of its own that carries its name. The client's questions for many groups at once would need none, but in this
//! version they end the process when the coordinator's connection breaks at the wrong moment (librdkafka#5397).
//!
//! **Safety.** As in `native`: every object that is made here is destroyed here, after its last use, and strings are copied out of
//! the answers before those go.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::bindings as sys;
use rdkafka::types::RDKafkaErrorCode;

use super::admin::drop_elsewhere;
use super::config::KafkaConfig;
use super::context::{Deliveries, Quiet};
use super::fault;
use super::native::{Handle, millis};
use crate::error::LogError;

/// Clients that are kept; when there are more groups they are made anew.
const CLIENTS: usize = 64;

/// A list of partitions with offsets.
struct List(*mut sys::rd_kafka_topic_partition_list_t);

impl List {
    fn new<'a>(places: impl IntoIterator<Item = (&'a str, u32, Option<u64>)>) -> Result<List, LogError> {
        // SAFETY: no precondition; the library aborts when it has no memory.
        let list = List(unsafe { sys::rd_kafka_topic_partition_list_new(0) });
        for (topic, partition, offset) in places {
            let topic = text(topic)?;
            // SAFETY: the list lives; the name is copied; the returned element is in the list until the next is added.
            unsafe {
                let element =
                    sys::rd_kafka_topic_partition_list_add(list.0, topic.as_ptr(), partition as i32);
                if let Some(offset) = offset {
                    (*element).offset = i64::try_from(offset).unwrap_or(i64::MAX);
                }
            }
        }
        Ok(list)
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: made above, destroyed once.
        unsafe { sys::rd_kafka_topic_partition_list_destroy(self.0) };
    }
}

/// An answer.
struct Event(*mut sys::rd_kafka_event_t);

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: taken from a queue, destroyed once.
        unsafe { sys::rd_kafka_event_destroy(self.0) };
    }
}

/// A queue for one answer.
struct Queue<'a> {
    raw: *mut sys::rd_kafka_queue_t,
    _client: &'a Handle,
}

impl<'a> Queue<'a> {
    fn new(client: &'a Handle) -> Queue<'a> {
        // SAFETY: the client lives as long as the queue, which borrows it.
        Queue { raw: unsafe { sys::rd_kafka_queue_new(client.native()) }, _client: client }
    }
}

impl Drop for Queue<'_> {
    fn drop(&mut self) {
        // SAFETY: made above, destroyed once. An answer that is still to come is thrown away by the library.
        unsafe { sys::rd_kafka_queue_destroy(self.raw) };
    }
}

/// Options of one request: the default patience of 60 s of the library is too long, and nobody waits for it.
struct Options<'a> {
    raw: *mut sys::rd_kafka_AdminOptions_t,
    _client: &'a Handle,
}

impl<'a> Options<'a> {
    fn new(client: &'a Handle, kind: sys::rd_kafka_admin_op_t, timeout: Duration) -> Options<'a> {
        // SAFETY: the client lives as long as the options, which borrow it. No text of an error is wanted, and a time out of range
        // leaves the default.
        let raw = unsafe {
            let raw = sys::rd_kafka_AdminOptions_new(client.native(), kind);
            sys::rd_kafka_AdminOptions_set_request_timeout(raw, millis(timeout), ptr::null_mut(), 0);
            raw
        };
        Options { raw, _client: client }
    }
}

impl Drop for Options<'_> {
    fn drop(&mut self) {
        // SAFETY: made above, destroyed once.
        unsafe { sys::rd_kafka_AdminOptions_destroy(self.raw) };
    }
}

fn text(name: &str) -> Result<CString, LogError> {
    CString::new(name).map_err(|_| LogError::Config(format!("{name:?} has a zero byte in it")))
}

/// # Safety
/// `raw` must be a terminated string that lives over the call.
unsafe fn owned(raw: *const c_char) -> String {
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(raw) }.to_string_lossy().into_owned()
}

/// The clients of groups.
pub(super) struct Groups {
    config: KafkaConfig,
    deliveries: Arc<Deliveries>,
    /// For what is not asked of one group.
    any: Arc<Handle>,
    clients: Mutex<BTreeMap<String, Arc<Handle>>>,
}

impl Groups {
    pub(super) fn new(config: &KafkaConfig, deliveries: &Arc<Deliveries>, any: Arc<Handle>) -> Groups {
        let (config, deliveries) = (config.clone(), deliveries.clone());
        Groups { config, deliveries, any, clients: Mutex::default() }
    }

    fn clients(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Handle>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn client(&self, group: &str) -> Result<Arc<Handle>, LogError> {
        if let Some(client) = self.clients().get(group) {
            return Ok(client.clone());
        }
        let mut settings = self.config.client();
        settings
            .set("group.id", group)
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("allow.auto.create.topics", "false");
        self.config.finish(&mut settings);
        let consumer = settings
            .create_with_context(Quiet)
            .map_err(|error| fault::from_client(&self.config.bootstrap, "making a client", &error))?;
        let mut clients = self.clients();
        if clients.len() >= CLIENTS {
            drop_elsewhere(std::mem::take(&mut *clients));
        }
        Ok(clients
            .entry(group.into())
            .or_insert_with(|| Arc::new(Handle::new(consumer, &self.config)))
            .clone())
    }

    /// What is to be done for the clients now and then.
    pub(super) fn serve(&self) {
        let clients: Vec<_> = self.clients().values().cloned().collect();
        for client in clients {
            client.serve();
        }
    }

    fn fail(&self, doing: &'static str, code: sys::rd_kafka_resp_err_t) -> Result<(), LogError> {
        match code {
            sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR => Ok(()),
            sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID
            | sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_GROUP_SUBSCRIBED_TO_TOPIC => {
                Err(LogError::Config(format!(
                    "{doing}: the group has members now, and only they may change its offsets. Stop them first"
                )))
            }
            code => Err(fault::from_code(&self.config.bootstrap, doing, RDKafkaErrorCode::from(code))),
        }
    }

    /// Waits for an answer on a queue.
    fn wait(&self, queue: &Queue<'_>, doing: &'static str) -> Result<Event, LogError> {
        let deadline = Instant::now() + self.config.request_timeout;
        loop {
            // SAFETY: the queue lives; nobody else reads it.
            let event = unsafe { sys::rd_kafka_queue_poll(queue.raw, 50) };
            if !event.is_null() {
                let event = Event(event);
                // SAFETY: the event lives.
                self.fail(doing, unsafe { sys::rd_kafka_event_error(event.0) })?;
                return Ok(event);
            }
            if self.deliveries.is_closed() {
                return Err(LogError::Closed { doing });
            }
            if Instant::now() >= deadline {
                return Err(fault::unavailable(&self.config.bootstrap, doing, "no answer in time"));
            }
        }
    }

    /// The committed offsets of a group in these partitions, in the same order.
    pub(super) fn committed(
        &self,
        group: &str,
        places: &[(&str, u32)],
    ) -> Result<Vec<Option<u64>>, LogError> {
        const DOING: &str = "asking for a group's offsets";
        let client = self.client(group)?;
        let list = List::new(places.iter().map(|(topic, partition)| (*topic, *partition, None)))?;
        let deadline = Instant::now() + self.config.request_timeout;
        loop {
            if self.deliveries.is_closed() {
                return Err(LogError::Closed { doing: DOING });
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let question = left.clamp(Duration::from_millis(1), Duration::from_secs(2));
            // SAFETY: client and list live over the call, which fills the list.
            match unsafe { sys::rd_kafka_committed(client.native(), list.0, millis(question)) } {
                sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR => return self.offsets(&list, DOING),
                code if left <= question => self.fail(DOING, code)?,
                sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__TIMED_OUT => {}
                // An answer that came early: it is not asked again at once.
                _ => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    fn offsets(&self, list: &List, doing: &'static str) -> Result<Vec<Option<u64>>, LogError> {
        // SAFETY: the list lives, and has as many elements as it says.
        let elements = unsafe { std::slice::from_raw_parts((*list.0).elems, (*list.0).cnt.max(0) as usize) };
        elements
            .iter()
            .map(|element| self.fail(doing, element.err).map(|()| u64::try_from(element.offset).ok()))
            .collect()
    }

    /// Sets an offset of a group.
    pub(super) fn commit(
        &self,
        group: &str,
        topic: &str,
        partition: u32,
        offset: u64,
    ) -> Result<(), LogError> {
        const DOING: &str = "committing an offset";
        let client = self.client(group)?;
        let list = List::new([(topic, partition, Some(offset))])?;
        let queue = Queue::new(&client);
        // SAFETY: client, list and queue live over the call, which copies the list; the answer comes to the queue.
        let code =
            unsafe { sys::rd_kafka_commit_queue(client.native(), list.0, queue.raw, None, ptr::null_mut()) };
        self.fail(DOING, code)?;
        let event = self.wait(&queue, DOING)?;
        // SAFETY: the event lives, and the list belongs to it.
        unsafe {
            let list = sys::rd_kafka_event_topic_partition_list(event.0);
            if !list.is_null() {
                for element in 0..(*list).cnt.max(0) as usize {
                    self.fail(DOING, (*(*list).elems.add(element)).err)?;
                }
            }
        }
        Ok(())
    }

    /// Removes a group's offsets of these partitions. To be called right after the coordinator answered a question: see above.
    pub(super) fn forget(&self, group: &str, places: &[(&str, u32)]) -> Result<(), LogError> {
        const DOING: &str = "forgetting a group";
        let client = self.client(group)?;
        let name = text(group)?;
        let list = List::new(places.iter().map(|(topic, partition)| (*topic, *partition, None)))?;
        let queue = Queue::new(&client);
        let options = Options::new(
            &client,
            sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DELETECONSUMERGROUPOFFSETS,
            self.config.request_timeout,
        );
        // SAFETY: name and list live over the calls, which copy them; what is made is destroyed after the request has copied it.
        unsafe {
            let mut wanted = sys::rd_kafka_DeleteConsumerGroupOffsets_new(name.as_ptr(), list.0);
            let native = client.native();
            sys::rd_kafka_DeleteConsumerGroupOffsets(native, &raw mut wanted, 1, options.raw, queue.raw);
            sys::rd_kafka_DeleteConsumerGroupOffsets_destroy(wanted);
        }
        let event = self.wait(&queue, DOING)?;
        let mut count = 0;
        // SAFETY: the event lives; results, errors and lists belong to it.
        unsafe {
            let result = sys::rd_kafka_event_DeleteConsumerGroupOffsets_result(event.0);
            if result.is_null() {
                return Err(fault::unavailable(&self.config.bootstrap, DOING, "an answer to something else"));
            }
            let groups = sys::rd_kafka_DeleteConsumerGroupOffsets_result_groups(result, &raw mut count);
            for index in 0..count {
                let group = *groups.add(index);
                let error = sys::rd_kafka_group_result_error(group);
                if !error.is_null() {
                    self.fail(DOING, sys::rd_kafka_error_code(error))?;
                }
                let list = sys::rd_kafka_group_result_partitions(group);
                if !list.is_null() {
                    for element in 0..(*list).cnt.max(0) as usize {
                        self.fail(DOING, (*(*list).elems.add(element)).err)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The names of all groups.
    pub(super) fn names(&self) -> Result<Vec<String>, LogError> {
        const DOING: &str = "asking for the groups";
        let queue = Queue::new(&self.any);
        let options = Options::new(
            &self.any,
            sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_LISTCONSUMERGROUPS,
            self.config.request_timeout,
        );
        // SAFETY: client, options and queue live.
        unsafe { sys::rd_kafka_ListConsumerGroups(self.any.native(), options.raw, queue.raw) };
        let event = self.wait(&queue, DOING)?;
        let mut names = Vec::new();
        // SAFETY: the event lives, and listings and names belong to it.
        unsafe {
            let result = sys::rd_kafka_event_ListConsumerGroups_result(event.0);
            if result.is_null() {
                return Err(fault::unavailable(&self.config.bootstrap, DOING, "an answer to something else"));
            }
            let mut count = 0;
            let listed = sys::rd_kafka_ListConsumerGroups_result_valid(result, &raw mut count);
            for index in 0..count {
                names.push(owned(sys::rd_kafka_ConsumerGroupListing_group_id(*listed.add(index))));
            }
        }
        Ok(names)
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        // Each waits for its coordinator; all at once, and nobody for them.
        for (_, client) in std::mem::take(&mut *self.clients()) {
            drop_elsewhere(client);
        }
    }
}
