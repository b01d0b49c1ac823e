//! NUMA nodes: on which one pages are to lie, and on which they do.
//!
//! Pages are preferred on a node, so those that it has no room for lie on others, without a word. [`Foreign`]
//! estimates how many do, from a sample of pages ten times a second: asking for all, or reading
//! `/proc/self/numa_maps`, takes a walk through the whole range. Cost: one system call for 32 pages per sample.

use std::ffi::{c_int, c_void};
use std::{fs, io, ptr};

use super::jemalloc::page_bytes;

/// `mbind`: this node first, others where it has no memory left; a bound process would be killed instead.
const MPOL_PREFERRED: c_int = 1;
/// Pages of one sample.
const SAMPLE: usize = 32;
/// What the share is moved by, of the difference: it is a mean of about three seconds.
const WEIGHT: f64 = 1.0 / 32.0;

/// Pages of these addresses are taken from `node`, as long as it has some.
pub fn prefer(address: *mut c_void, bytes: usize, node: u32) -> io::Result<()> {
    let mut nodes = [0u64; 16];
    nodes[node as usize / 64] = 1 << (node % 64);
    let bits = nodes.len() * 64;
    // SAFETY: the call reads the mask, of as many bits, and changes where new pages of our addresses come from.
    if unsafe { libc::syscall(libc::SYS_mbind, address, bytes, MPOL_PREFERRED, nodes.as_ptr(), bits, 0) } == 0 {
        return Ok(());
    }
    let why = io::Error::last_os_error();
    match fs::read_to_string("/sys/devices/system/node/has_memory") {
        Ok(nodes) if why.raw_os_error() == Some(libc::EINVAL) => {
            Err(io::Error::other(format!("there is no such node with memory; there are {}", nodes.trim())))
        }
        _ => Err(why),
    }
}

/// Tries whether a node gives memory, with a page that is given back at once.
pub fn check(node: u32) -> io::Result<()> {
    let bytes = page_bytes();
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new page, which nobody else knows.
    let page = unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let preferred = prefer(page, bytes, node);
    // SAFETY: mapped above, and used no more.
    unsafe { libc::munmap(page, bytes) };
    preferred
}

/// On which node each page lies; below 0 where the kernel doesn't say, as of pages that were never written.
pub fn nodes_of<const N: usize>(pages: &[*const c_void; N]) -> [c_int; N] {
    let mut nodes = [-1; N];
    // SAFETY: asks about pages of this process without moving any, and writes as many numbers.
    unsafe {
        libc::syscall(libc::SYS_move_pages, 0, N, pages.as_ptr(), ptr::null::<c_int>(), nodes.as_mut_ptr(), 0);
    }
    nodes
}

/// Estimates which share of a range's pages lie on other nodes.
#[derive(Debug)]
pub struct Foreign {
    /// Where the sequence of sampled pages stands (splitmix64).
    drawn: u64,
    /// From 0 to 1.
    share: f64,
}

impl Foreign {
    /// All pages lie where they should, until some are met that don't.
    pub fn new() -> Foreign {
        Foreign { drawn: 0, share: 0.0 }
    }

    /// Looks at some pages of `bytes` from `start`; returns the share of those in memory that don't lie on `node`,
    /// from 0 to 1.
    pub fn look(&mut self, start: *const u8, bytes: usize, node: u32) -> f64 {
        let pages = [(); SAMPLE].map(|()| start.wrapping_add(self.draw(bytes)).cast());
        for found in nodes_of(&pages).into_iter().filter(|found| *found >= 0) {
            let is_foreign = if found == node as c_int { 0.0 } else { 1.0 };
            self.share += WEIGHT / SAMPLE as f64 * (is_foreign - self.share);
        }
        self.share
    }

    /// A number below `n`, or 0.
    fn draw(&mut self, n: usize) -> usize {
        self.drawn = self.drawn.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.drawn ^ (self.drawn >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(mixed ^ (mixed >> 31)) * n as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_pages_count_by_their_node() {
        let memory = vec![1u8; 1 << 20];
        let [node] = nodes_of(&[memory.as_ptr().cast()]);
        let Ok(node) = u32::try_from(node) else {
            println!("SKIPPED: the kernel doesn't say on which node a page lies");
            return;
        };
        let share = |node| {
            let mut foreign = Foreign::new();
            (0..300).map(|_| foreign.look(memory.as_ptr(), memory.len(), node)).last()
        };
        assert_eq!(share(node), Some(0.0));
        // After 300 samples what was there before weighs (1 - 1/1024)^9600 < 0.0001.
        assert!(share(node + 1) > Some(0.999), "{:?}", share(node + 1));
    }
}
