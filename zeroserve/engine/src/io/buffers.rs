//! Receive buffers lent to the kernel as a provided buffer ring: an idle connection holds none, and the kernel takes
//! one only when bytes have arrived.

use std::cell::Cell;
use std::io;
use std::ops::Deref;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;

/// Bytes in one buffer: a TLS record of a browser's request fits, a full 16 KiB record takes four.
pub const BUFFER_BYTES: usize = 4096;
/// Buffers of one worker; a power of two, as the kernel asks.
pub const BUFFER_COUNT: u16 = 256;
/// The only buffer group of a ring.
pub const BUFFER_GROUP: u16 = 0;

/// An anonymous mapping: page-aligned, as the kernel asks, and untouched pages cost nothing.
struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

impl Mapping {
    fn new(len: usize) -> io::Result<Self> {
        // SAFETY: a fresh private mapping; no existing memory is affected.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { base: NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?, len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `base` and `len` came from mmap, and the ring that knew the memory is closed before it (see `Ring`).
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// The buffers of one ring.
///
/// Invariant: a buffer is in exactly one of two hands, the kernel's (its id stands between the ring's head and tail)
/// or a [`Buffer`]'s. Only `Buffer` reads the memory, so nothing is read while the kernel may write it.
pub struct BufferPool {
    entries: Mapping,
    memory: Mapping,
    tail: Cell<u16>,
}

impl BufferPool {
    /// Maps the memory and hands every buffer to the (not yet registered) ring.
    pub fn new() -> io::Result<Rc<Self>> {
        let pool = Rc::new(Self {
            entries: Mapping::new(usize::from(BUFFER_COUNT) * size_of::<BufRingEntry>())?,
            memory: Mapping::new(usize::from(BUFFER_COUNT) * BUFFER_BYTES)?,
            tail: Cell::new(0),
        });
        (0..BUFFER_COUNT).for_each(|id| pool.give_back(id));
        Ok(pool)
    }

    /// Address of the ring of entries, for `IORING_REGISTER_PBUF_RING`.
    pub fn ring_address(&self) -> u64 {
        self.entries.base.as_ptr() as u64
    }

    /// The buffer that a completion names, of which the kernel filled `len` bytes.
    pub fn take(self: &Rc<Self>, id: u16, len: usize) -> Buffer {
        debug_assert!(id < BUFFER_COUNT && len <= BUFFER_BYTES);
        Buffer(Storage::Lent { pool: self.clone(), id, len })
    }

    fn give_back(&self, id: u16) {
        let tail = self.tail.get();
        let base: *mut BufRingEntry = self.entries.base.as_ptr().cast();
        // SAFETY: the masked index lies in the mapping, and the kernel reads an entry only once the tail has passed it.
        let entry = unsafe { &mut *base.add(usize::from(tail & (BUFFER_COUNT - 1))) };
        entry.set_addr(self.memory.base.as_ptr() as u64 + (usize::from(id) * BUFFER_BYTES) as u64);
        entry.set_len(BUFFER_BYTES as u32);
        entry.set_bid(id);
        self.tail.set(tail.wrapping_add(1));
        // SAFETY: `base` is the first entry of the ring, where the tail lives; release pairs with the kernel's acquire.
        unsafe { AtomicU16::from_ptr(BufRingEntry::tail(base).cast_mut()) }
            .store(self.tail.get(), Ordering::Release);
    }
}

/// Bytes that arrived. Dropping it lends the memory to the kernel again.
pub struct Buffer(Storage);

enum Storage {
    Lent { pool: Rc<BufferPool>, id: u16, len: usize },
    Copied(Box<[u8]>),
}

impl Buffer {
    /// Moves the bytes out of the pool, so that nobody who is slow to read them keeps others from receiving.
    pub fn detached(self) -> Self {
        match &self.0 {
            Storage::Lent { .. } => Self(Storage::Copied(Box::from(&*self))),
            Storage::Copied(_) => self,
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Storage::Lent { pool, id, len } => {
                let start = usize::from(*id) * BUFFER_BYTES;
                // SAFETY: the buffer is in our hand (see `BufferPool`) and the kernel wrote its first `len` bytes.
                unsafe { std::slice::from_raw_parts(pool.memory.base.as_ptr().add(start), *len) }
            }
            Storage::Copied(bytes) => bytes,
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Storage::Lent { pool, id, .. } = &self.0 {
            pool.give_back(*id);
        }
    }
}
