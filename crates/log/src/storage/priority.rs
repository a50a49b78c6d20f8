//! Whose writes the disk takes first.
//!
//! An order waits for the journal's sync, and on one disk that sync queues behind whatever the read models write. The kernel's `mq-deadline`
//! and `bfq` schedulers serve a thread's own writes and syncs by its class; others ignore it.

use std::io;

/// A class of the calling thread's disk operations (Linux, ioprio_set(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoPriority {
    /// Before all others: the journal. Needs a privilege (CAP_SYS_NICE); without it, the best that everybody may have.
    First,
    /// After all others: what can be rebuilt or can wait. The kernel lets nobody wait for ever.
    Last,
}

/// Sets the class for the calling thread. Errors: what the system says; the thread then keeps the class it has, which costs only time.
pub fn set_io_priority(priority: IoPriority) -> io::Result<()> {
    // Class in the upper three bits, level 0 to 7 below (linux/ioprio.h): 1 real time, 2 best effort, 3 idle.
    let tries: &[libc::c_long] = match priority {
        IoPriority::First => &[1 << 13, 2 << 13],
        IoPriority::Last => &[3 << 13],
    };
    let mut result = Ok(());
    for &value in tries {
        const WHO_PROCESS: libc::c_long = 1;
        // SAFETY: the call takes three integers and touches no memory; 0 names the calling thread.
        let returned = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0_i64, value) };
        if returned == 0 {
            return Ok(());
        }
        result = Err(io::Error::last_os_error());
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_may_step_back_and_forward() {
        let set =
            |priority| std::thread::spawn(move || set_io_priority(priority)).join().expect("the thread ends");
        set(IoPriority::Last).expect("anybody may step back");
        set(IoPriority::First).expect("best effort needs no privilege");
    }
}
