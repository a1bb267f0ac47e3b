//! The atomics and locks of the lock-free parts, in one place: the model tests (`vectorset/loom`) compile the
//! same files with the model's own.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
pub(crate) use std::sync::{Arc, Mutex, PoisonError};
