//! Written pages of a Wasm memory, as the kernel marks them.
//!
//! Comparing a whole heap with its image takes a millisecond for each message, more than most messages take to run. Linux 6.7 and later
//! marks the pages that were written (`userfaultfd` with asynchronous write protection) and returns and clears the marks in one call
//! (`PAGEMAP_SCAN`). Elsewhere, and in a sandbox that forbids either, the whole memory counts as written.

use std::ops::Range;

/// The part of one memory whose pages are marked.
#[derive(Default)]
pub(crate) struct Written {
    marked: Range<usize>,
}

impl Written {
    /// Returns the byte ranges of `memory` that may have been written since the last call; whole pages. The first call returns all.
    pub(crate) fn take(&mut self, memory: &[u8]) -> Vec<Range<usize>> {
        kernel::take(&mut self.marked, memory).unwrap_or_else(|| {
            self.marked = 0..0;
            std::iter::once(0..memory.len()).collect()
        })
    }
}

#[cfg(not(target_os = "linux"))]
mod kernel {
    pub(super) fn take(_: &mut std::ops::Range<usize>, _: &[u8]) -> Option<Vec<std::ops::Range<usize>>> {
        None
    }
}

#[cfg(target_os = "linux")]
mod kernel {
    use std::fs::File;
    use std::ops::Range;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    use std::sync::LazyLock;

    /// `UFFD_USER_MODE_ONLY`, which needs no privilege.
    const USER_MODE_ONLY: i32 = 1;
    /// `UFFD_FEATURE_WP_UNPOPULATED` and `UFFD_FEATURE_WP_ASYNC`.
    const FEATURES: u64 = 1 << 13 | 1 << 15;
    /// `UFFDIO_REGISTER_MODE_WP`.
    const WRITE_PROTECT: u64 = 1 << 1;
    /// `PM_SCAN_WP_MATCHING` and `PM_SCAN_CHECK_WPASYNC`.
    const CLEAR: u64 = 1 << 0 | 1 << 1;
    /// `PAGE_IS_WRITTEN`.
    const IS_WRITTEN: u64 = 1 << 1;

    #[repr(C)]
    struct Api {
        api: u64,
        features: u64,
        ioctls: u64,
    }

    #[repr(C)]
    struct Register {
        start: u64,
        len: u64,
        mode: u64,
        ioctls: u64,
    }

    #[repr(C)]
    #[derive(Clone, Copy, Default)]
    struct Region {
        start: u64,
        end: u64,
        categories: u64,
    }

    #[repr(C)]
    struct Scan {
        size: u64,
        flags: u64,
        start: u64,
        end: u64,
        walk_end: u64,
        regions: u64,
        regions_len: u64,
        max_pages: u64,
        inverted: u64,
        mask: u64,
        any_of: u64,
        returned: u64,
    }

    /// Returns the number of an `ioctl` that reads and writes a `T`.
    const fn request<T>(kind: u8, number: u8) -> libc::Ioctl {
        (3 << 30 | (size_of::<T>() as u64) << 16 | (kind as u64) << 8 | number as u64) as libc::Ioctl
    }

    /// The kernel's two interfaces, open.
    struct Kernel {
        faults: OwnedFd,
        pages: File,
    }

    static KERNEL: LazyLock<Option<Kernel>> = LazyLock::new(|| {
        // SAFETY: the call takes flags and returns a new descriptor or -1.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | USER_MODE_ONLY) };
        let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
        // SAFETY: the descriptor is new and open.
        let faults = unsafe { OwnedFd::from_raw_fd(fd) };
        call(&faults, request::<Api>(0xAA, 0x3F), &mut Api { api: 0xAA, features: FEATURES, ioctls: 0 })?;
        Some(Kernel { faults, pages: File::open("/proc/self/pagemap").ok()? })
    });

    /// Makes a call that reads and writes `argument`; `None` if it is refused.
    fn call<T>(fd: &impl AsRawFd, request: libc::Ioctl, argument: &mut T) -> Option<i32> {
        // SAFETY: the request's number has the size of `T`, and the kernel writes only into `argument`, or into what it points to.
        let result = unsafe { libc::ioctl(fd.as_raw_fd(), request, std::ptr::from_mut(argument)) };
        (result >= 0).then_some(result)
    }

    pub(super) fn take(marked: &mut Range<usize>, memory: &[u8]) -> Option<Vec<Range<usize>>> {
        let kernel = KERNEL.as_ref()?;
        let base = memory.as_ptr() as usize;
        let all = base..base + memory.len();
        // The memory is new, or has grown in place. All of the new part is returned, because kernels up to 6.18 do not report a page that
        // was never touched, and it may differ from the image.
        let known = if marked.start == base { marked.end.min(all.end) } else { base };
        if *marked != all {
            let mut register =
                Register { start: known as u64, len: (all.end - known) as u64, mode: WRITE_PROTECT, ioctls: 0 };
            call(&kernel.faults, request::<Register>(0xAA, 0), &mut register)?;
            *marked = all.clone();
        }
        let mut found = Vec::new();
        let mut from = all.start;
        while from < all.end {
            let mut regions = [Region::default(); 64];
            let mut scan = Scan {
                size: size_of::<Scan>() as u64,
                flags: CLEAR,
                start: from as u64,
                end: all.end as u64,
                walk_end: 0,
                regions: regions.as_mut_ptr() as u64,
                regions_len: regions.len() as u64,
                max_pages: 0,
                inverted: 0,
                mask: IS_WRITTEN,
                any_of: 0,
                returned: IS_WRITTEN,
            };
            let count = call(&kernel.pages, request::<Scan>(b'f', 16), &mut scan)?;
            let regions = regions.get(..usize::try_from(count).ok()?)?.iter();
            let old = regions.map(|region| region.start as usize - base..(region.end as usize).min(known) - base);
            found.extend(old.filter(|range| !range.is_empty()));
            from = scan.walk_end as usize;
        }
        found.push(known - base..memory.len());
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4_096;

    /// Memory of whole pages, as Wasmtime maps it.
    fn memory(pages: usize) -> (Vec<u8>, Range<usize>) {
        let bytes = vec![0; (pages + 1) * PAGE];
        let start = bytes.as_ptr().align_offset(PAGE);
        (bytes, start..start + pages * PAGE)
    }

    fn covers(found: &[Range<usize>], page: usize) -> bool {
        found.iter().any(|range| range.start <= page * PAGE && (page + 1) * PAGE <= range.end)
    }

    #[test]
    fn each_written_page_is_returned_once_and_a_grown_part_whole() {
        let (mut bytes, all) = memory(300);
        let part = all.start..all.start + 200 * PAGE;
        let mut written = Written::default();
        let found = written.take(&bytes[part.clone()]);
        assert!((0..200).all(|page| covers(&found, page)), "the first call returns all");
        let is_marked = written.marked.len() == part.len();
        // Every second page, so that the kernel cannot join them, and more than fit one call.
        for page in (0..200).step_by(2) {
            bytes[all.start + page * PAGE + page] = 1;
        }
        let found = written.take(&bytes[part.clone()]);
        assert!((0..200).step_by(2).all(|page| covers(&found, page)));
        if !is_marked {
            eprintln!("the kernel does not mark written pages here");
            return;
        }
        assert!((1..200).step_by(2).all(|page| !covers(&found, page)), "{found:?}");
        assert!(written.take(&bytes[part.clone()]).iter().all(Range::is_empty));
        bytes[all.start + 7 * PAGE] += 1;
        let found = written.take(&bytes[all.clone()]);
        assert!(covers(&found, 7) && !covers(&found, 8) && (200..300).all(|page| covers(&found, page)), "{found:?}");
        assert_eq!(found.iter().map(Range::len).sum::<usize>(), 101 * PAGE, "no page twice");
    }
}
