//! The 64-bit key of a run's lock.
//!
//! Two versions of the library can run in one cluster at a time (old connections keep the old one), and
//! they must lock the same key: the function is fixed for ever, and pinned by a test. Two runs that
//! collide wait for each other, which costs throughput, never correctness.

/// Key of `run` in the store whose steps table has the OID `steps`: FNV-1a over both, then the finisher
/// of MurmurHash3, since FNV alone leaves the high bits of short ids alike.
/// Sources: Fowler, Noll, Vo, draft-eastlake-fnv; Appleby, MurmurHash3 (fmix64).
pub fn run_key(steps: u32, run: &[u8]) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in steps.to_le_bytes().iter().chain(run) {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_a_run_never_changes() {
        assert_eq!(run_key(16384, b"run"), 0xb84b_2f28_ba56_3484);
        assert_eq!(run_key(16385, b"run"), 0x9571_82ce_706d_1572);
        assert_eq!(run_key(16384, b""), 0xf5ba_1879_9df1_707d);
    }

    #[test]
    fn a_million_runs_have_a_million_keys() {
        let keys: std::collections::HashSet<u64> =
            (0..1_000_000).map(|n| run_key(16384, format!("run-{n}").as_bytes())).collect();
        assert_eq!(keys.len(), 1_000_000);
    }
}
