//! The offsets of groups, without being a member: asked and set through the group's coordinator.
//!
//! **Safety.** As in `native`: every object that is made here is destroyed here, after its last use, and strings are copied out of
//! the answers before those go.

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::bindings as sys;
use rdkafka::types::RDKafkaErrorCode;

use super::config::KafkaConfig;
use super::fault;
use super::native::{Handle, millis};
use crate::error::LogError;

/// A group's offset in a partition of a topic, by its name on the cluster; `None` when it has committed none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) topic: String,
    pub(super) partition: u32,
    pub(super) offset: Option<u64>,
}

/// A list of partitions with offsets.
struct List(*mut sys::rd_kafka_topic_partition_list_t);

impl List {
    fn new(places: &[Place]) -> Result<List, LogError> {
        // SAFETY: no precondition; the library aborts when it has no memory.
        let list = List(unsafe { sys::rd_kafka_topic_partition_list_new(places.len() as c_int) });
        for place in places {
            let topic = text(&place.topic)?;
            // SAFETY: the list lives; the name is copied; the returned element is in the list.
            unsafe {
                let element =
                    sys::rd_kafka_topic_partition_list_add(list.0, topic.as_ptr(), place.partition as i32);
                if let Some(offset) = place.offset {
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

/// A queue and options for one request.
struct Request<'a> {
    handle: &'a Handle,
    queue: *mut sys::rd_kafka_queue_t,
    options: *mut sys::rd_kafka_AdminOptions_t,
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        // SAFETY: made in `Coordinator::request`, destroyed once. An answer that is still to come is thrown away by the library.
        unsafe {
            sys::rd_kafka_queue_destroy(self.queue);
            sys::rd_kafka_AdminOptions_destroy(self.options);
        }
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

/// Asks for groups.
pub(super) struct Coordinator<'a> {
    pub(super) config: &'a KafkaConfig,
    pub(super) handle: Arc<Handle>,
    pub(super) stop: &'a dyn Fn() -> bool,
}

impl Coordinator<'_> {
    fn request(&self, kind: sys::rd_kafka_admin_op_t) -> Request<'_> {
        let native = self.handle.native();
        // SAFETY: the client lives as long as the handle that the request borrows.
        let (queue, options) =
            unsafe { (sys::rd_kafka_queue_new(native), sys::rd_kafka_AdminOptions_new(native, kind)) };
        let timeout = millis(self.config.request_timeout);
        // SAFETY: the options live; no text of an error is wanted. Refused only for a time out of range; then the default holds.
        unsafe {
            sys::rd_kafka_AdminOptions_set_request_timeout(options, timeout, ptr::null_mut(), 0);
        }
        Request { handle: &self.handle, queue, options }
    }

    fn fail(&self, doing: &'static str, code: sys::rd_kafka_resp_err_t) -> Result<(), LogError> {
        match code {
            sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR => Ok(()),
            code => Err(fault::from_code(&self.config.bootstrap, doing, RDKafkaErrorCode::from(code))),
        }
    }

    fn wait(&self, request: &Request<'_>, doing: &'static str) -> Result<Event, LogError> {
        let deadline = Instant::now() + self.config.request_timeout + Duration::from_secs(1);
        loop {
            // SAFETY: the queue lives; nobody else reads it.
            let event = unsafe { sys::rd_kafka_queue_poll(request.queue, 50) };
            if !event.is_null() {
                let event = Event(event);
                // SAFETY: the event lives.
                self.fail(doing, unsafe { sys::rd_kafka_event_error(event.0) })?;
                return Ok(event);
            }
            if (self.stop)() {
                return Err(LogError::Closed { doing });
            }
            if Instant::now() >= deadline {
                return Err(fault::unavailable(&self.config.bootstrap, doing, "no answer in time"));
            }
        }
    }

    /// # Safety
    /// `groups` must be an array of `count` results that live over the call.
    unsafe fn places(
        &self,
        doing: &'static str,
        groups: *mut *const sys::rd_kafka_group_result_t,
        count: usize,
    ) -> Result<Vec<(Place, sys::rd_kafka_resp_err_t)>, LogError> {
        let mut places = Vec::new();
        for index in 0..count {
            // SAFETY: within the array, which lives; error and list belong to the result.
            unsafe {
                let group = *groups.add(index);
                let error = sys::rd_kafka_group_result_error(group);
                if !error.is_null() {
                    self.fail(doing, sys::rd_kafka_error_code(error))?;
                }
                let list = sys::rd_kafka_group_result_partitions(group);
                if list.is_null() {
                    continue;
                }
                for element in 0..(*list).cnt.max(0) as usize {
                    let element = &*(*list).elems.add(element);
                    let place = Place {
                        topic: owned(element.topic),
                        partition: element.partition.max(0) as u32,
                        offset: u64::try_from(element.offset).ok(),
                    };
                    places.push((place, element.err));
                }
            }
        }
        Ok(places)
    }

    /// The committed offsets of a group: of these partitions, or of all that it has.
    pub(super) fn committed(&self, group: &str, of: Option<(&str, u32)>) -> Result<Vec<Place>, LogError> {
        const DOING: &str = "asking for a group's offsets";
        let request = self.request(sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_LISTCONSUMERGROUPOFFSETS);
        let group = text(group)?;
        let wanted = |(topic, partition): (&str, u32)| {
            List::new(&[Place { topic: topic.into(), partition, offset: None }])
        };
        let list = of.map(wanted).transpose()?;
        // SAFETY: name and list live over the call, which copies them; what is made is destroyed after the request has copied it.
        unsafe {
            let list = list.as_ref().map_or(ptr::null_mut(), |list| list.0);
            let mut asked = sys::rd_kafka_ListConsumerGroupOffsets_new(group.as_ptr(), list);
            let native = request.handle.native();
            sys::rd_kafka_ListConsumerGroupOffsets(native, &raw mut asked, 1, request.options, request.queue);
            sys::rd_kafka_ListConsumerGroupOffsets_destroy(asked);
        }
        let event = self.wait(&request, DOING)?;
        let mut count = 0;
        // SAFETY: the event lives, and the results belong to it.
        let places = unsafe {
            let result = sys::rd_kafka_event_ListConsumerGroupOffsets_result(event.0);
            if result.is_null() {
                return Err(fault::unavailable(&self.config.bootstrap, DOING, "an answer to something else"));
            }
            let groups = sys::rd_kafka_ListConsumerGroupOffsets_result_groups(result, &raw mut count);
            self.places(DOING, groups, count)?
        };
        let mut found = Vec::new();
        for (place, code) in places {
            self.fail(DOING, code)?;
            found.push(place);
        }
        Ok(found)
    }

    /// Sets an offset of a group.
    pub(super) fn commit(&self, group: &str, place: &Place) -> Result<(), LogError> {
        const DOING: &str = "committing an offset";
        let request = self.request(sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_ALTERCONSUMERGROUPOFFSETS);
        let name = text(group)?;
        let list = List::new(std::slice::from_ref(place))?;
        // SAFETY: as in `committed`.
        unsafe {
            let mut wanted = sys::rd_kafka_AlterConsumerGroupOffsets_new(name.as_ptr(), list.0);
            let native = request.handle.native();
            sys::rd_kafka_AlterConsumerGroupOffsets(
                native,
                &raw mut wanted,
                1,
                request.options,
                request.queue,
            );
            sys::rd_kafka_AlterConsumerGroupOffsets_destroy(wanted);
        }
        let event = self.wait(&request, DOING)?;
        let mut count = 0;
        // SAFETY: the event lives, and the results belong to it.
        let places = unsafe {
            let result = sys::rd_kafka_event_AlterConsumerGroupOffsets_result(event.0);
            if result.is_null() {
                return Err(fault::unavailable(&self.config.bootstrap, DOING, "an answer to something else"));
            }
            let groups = sys::rd_kafka_AlterConsumerGroupOffsets_result_groups(result, &raw mut count);
            self.places(DOING, groups, count)?
        };
        for (_, code) in places {
            if code == sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID {
                return Err(LogError::Config(format!(
                    "group {group} has members now: only they may commit its offsets. Stop them first"
                )));
            }
            self.fail(DOING, code)?;
        }
        Ok(())
    }

    /// Removes a group's offsets of these partitions.
    pub(super) fn forget(&self, group: &str, places: &[Place]) -> Result<(), LogError> {
        const DOING: &str = "forgetting a group";
        let request = self.request(sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DELETECONSUMERGROUPOFFSETS);
        let group = text(group)?;
        let list = List::new(places)?;
        // SAFETY: as in `committed`.
        unsafe {
            let mut wanted = sys::rd_kafka_DeleteConsumerGroupOffsets_new(group.as_ptr(), list.0);
            let native = request.handle.native();
            sys::rd_kafka_DeleteConsumerGroupOffsets(
                native,
                &raw mut wanted,
                1,
                request.options,
                request.queue,
            );
            sys::rd_kafka_DeleteConsumerGroupOffsets_destroy(wanted);
        }
        let event = self.wait(&request, DOING)?;
        let mut count = 0;
        // SAFETY: the event lives, and the results belong to it.
        let places = unsafe {
            let result = sys::rd_kafka_event_DeleteConsumerGroupOffsets_result(event.0);
            if result.is_null() {
                return Err(fault::unavailable(&self.config.bootstrap, DOING, "an answer to something else"));
            }
            let groups = sys::rd_kafka_DeleteConsumerGroupOffsets_result_groups(result, &raw mut count);
            self.places(DOING, groups, count)?
        };
        for (_, code) in places {
            self.fail(DOING, code)?;
        }
        Ok(())
    }

    /// The names of all groups.
    pub(super) fn groups(&self) -> Result<Vec<String>, LogError> {
        const DOING: &str = "asking for the groups";
        let request = self.request(sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_LISTCONSUMERGROUPS);
        // SAFETY: client, options and queue live.
        unsafe {
            sys::rd_kafka_ListConsumerGroups(request.handle.native(), request.options, request.queue);
        }
        let event = self.wait(&request, DOING)?;
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
