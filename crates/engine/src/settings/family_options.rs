//! The table of the options of a column family: an option is added by one entry here, and by a tag
//! in the manifest format. The entries are as in [`crate::settings::database_options`]; they
//! generate `FamilySettings` and `perigee::FamilyOptions`.

/// Calls the macro `$generate` with `$head` and the options of a column family. Types and default
/// values are resolved where the macro is called.
#[doc(hidden)]
#[macro_export]
macro_rules! family_options {
    ($generate:ident $($head:tt)*) => { $generate! { $($head)*

    /// The comparator, which defines the order of keys and which keys are equal (default: byte
    /// order). Fixed when the column family is created.
    comparator: KeyComparator = KeyComparator::Bytes,
        syntax Text,
        tradeoff "Comparator: how keys are sorted, and which are equal. Fixed when the column \
         family is created; `bytes` is the fastest.",
        set(comparator);

    /// Size in bytes at which a memtable is sealed and flushed (default 64 MiB). Larger means fewer
    /// and larger files and less write amplification, but more memory and a longer recovery.
    memtable_bytes: u64 = 64 << 20,
        syntax Size, limits within(1 << 10..=2 << 30),
        tradeoff "Size at which a memtable is flushed: larger means fewer tables and less \
         rewriting, but more memory and a longer recovery.",
        set(bytes);

    /// Length in bytes from which a value is separated: stored in a value log instead of the table
    /// (default 4096). Lower makes compactions cheaper and scans that read values more expensive.
    value_threshold: usize = 4096,
        syntax Length, limits within(0..=limits::INLINE_VALUE_BYTES_MAX as u64),
        tradeoff "Length from which values are stored in value logs: lower makes compactions \
         cheaper and scans that read values more expensive.",
        set(bytes);

    /// Uncompressed size in bytes of a data block (default 4 KiB). Larger compresses better;
    /// smaller makes single reads cheaper.
    block_bytes: usize = 4 << 10,
        syntax Length, limits within(64..=1 << 20),
        tradeoff "Uncompressed size of a data block: larger compresses better and needs a smaller \
         index, smaller makes single reads cheaper.",
        set(bytes);

    /// Compression of new files (default [`Compression::Lz4`]).
    compression: Compression = Compression::Lz4,
        syntax Text, limits is_supported(),
        tradeoff "Compression of new files: `none`, `lz4`, `lz4-fast N`, `snappy`, `zstd LEVEL`; \
         smaller files cost time to write and read them. `lz4` stores very compressible data in \
         larger blocks with Zstandard; `lz4-fast 1` never does.",
        set(compression);

    /// Bloom filter bits per key; 0 for no filter (default 10: 1.3 % false positives).
    filter_bits: u8 = 10,
        syntax FilterBits, limits within(0..=limits::FILTER_BITS_MAX.into()),
        tradeoff "Bloom filter bits per key (or `off`, or a false-positive rate such as `1 %`): \
         more take more memory and save more block reads for missing keys.",
        set(bits);

    /// Size in bytes at which a compaction starts a new table file (default 64 MiB).
    target_file_bytes: u64 = 64 << 20,
        syntax Size, limits within(1 << 10..=64 << 30),
        tradeoff "Size at which a new table file is started: larger means fewer files, smaller \
         means shorter compactions.",
        set(bytes);

    /// Amount of data in bytes up to which there is only one level below level 0 (default 256 MiB).
    /// Larger means fewer levels to read, but more rewriting of level 1.
    level1_bytes: u64 = 256 << 20,
        syntax Size, limits within(1 << 10..=1 << 50),
        tradeoff "Amount of data up to which there is only one level below level 0: larger means \
         fewer levels to read, and more expensive compactions out of level 0.",
        set(bytes);

    /// Size ratio between adjacent levels (default 10). All levels above the deepest add up to
    /// about 1/(ratio-1) of it, which bounds the space of overwritten entries. A lower ratio
    /// rewrites less but keeps more overwritten entries.
    level_ratio: u32 = 10,
        syntax Count, limits within(2..=100),
        tradeoff "Size ratio between adjacent levels: larger means fewer levels and less space, \
         but more rewriting.",
        set(ratio);

    /// Isolation level of transactions begun with [`Family::begin`](crate::Family::begin) that have
    /// none of their own (default `None`: as [`Options::isolation`]).
    isolation: Option<Isolation> = None,
        syntax IsolationOrDatabase,
        tradeoff "Default isolation level of transactions begun on the column family, `database` \
         for the option of the database: a stronger level means more conflicts.",
        set(isolation);

    /// The merge operator (default none; see [`Family::merge`](crate::Family::merge)). It can be
    /// set at any time on a column family that has none, but not changed or removed.
    merge_operator: Option<MergeRule> = None,
        syntax MergeRuleOrNone, limits is_valid_rule(),
        tradeoff "How merge operands combine with values: `none`, `counter`, `append:SEPARATOR`, \
         `user:NAME` for a registered operator; writes need no read, but reads apply all operands \
         written since the last compaction.";
    } };
}
