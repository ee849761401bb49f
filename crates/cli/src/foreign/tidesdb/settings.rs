//! Maps the settings of a TidesDB column family to Perigee's options, as Perigee's C library
//! (`capi`) does. Performs no I/O.

use super::api::FamilyConfig;
use crate::foreign::comparators;
use crate::foreign::source::MappedSetting;
use perigee::{Compression, FamilyOptions, Isolation, KeyComparator, limits};
use std::fmt::Display;

const COMPRESSIONS: [(&str, Compression); 5] = [
    ("none", Compression::None),
    ("snappy", Compression::Snappy),
    ("lz4", Compression::Lz4),
    ("zstd", Compression::Zstd(1)),
    ("lz4_fast", Compression::Lz4Fast(2)),
];
const SYNCS: [&str; 3] = ["none", "full", "interval"];

fn get_by_index<T: Copy>(all: &[T], index: i32) -> Option<T> {
    usize::try_from(index).ok().and_then(|i| all.get(i).copied())
}

/// Returns the configured false positive rate, or the default if it is out of range.
fn false_positive_rate(c: &FamilyConfig) -> f64 {
    if c.bloom_rate > 0.0 && c.bloom_rate < 1.0 { c.bloom_rate } else { 0.01 }
}

/// Returns the options of the column family under this comparator, and all settings for the report.
pub fn map_settings(
    c: &FamilyConfig,
    comparator: KeyComparator,
) -> (FamilyOptions, Vec<MappedSetting>) {
    let (compression, mapped_compression) =
        get_by_index(&COMPRESSIONS, c.compression).unwrap_or(COMPRESSIONS[2]);
    let isolation = get_by_index(&Isolation::ALL, c.isolation).unwrap_or(Isolation::ReadCommitted);
    let mut options = FamilyOptions::new()
        .comparator(comparator)
        .memtable_bytes((c.write_buffer as u64).clamp(1 << 10, 2 << 30))
        .value_threshold(if c.value_threshold == 0 {
            512
        } else {
            c.value_threshold.min(limits::INLINE_VALUE_BYTES_MAX)
        })
        .compression(mapped_compression)
        .level_ratio(c.level_ratio.clamp(2, 100) as u32)
        .isolation(Some(isolation));
    options = match c.bloom {
        0 => options.filter_bits(0),
        _ => options.filter_rate(false_positive_rate(c)),
    };
    let sync = match get_by_index(&SYNCS, c.sync).unwrap_or("unknown") {
        "interval" => format!("interval, {} us", c.sync_interval_us),
        other => other.to_owned(),
    };
    let mut all = vec![
        MappedSetting::mapped(
            "comparator_name",
            comparator_or_default(&c.comparator()),
            comparator.name(),
        ),
        MappedSetting::mapped(
            "write_buffer_size",
            c.write_buffer,
            format!("memtable_bytes {}", options.memtable_bytes),
        ),
        MappedSetting::mapped(
            "klog_value_threshold",
            c.value_threshold,
            format!("value_threshold {}", options.value_threshold),
        ),
        MappedSetting::mapped(
            "compression_algorithm",
            compression,
            format!("compression {mapped_compression:?}"),
        ),
        MappedSetting::mapped(
            "enable_bloom_filter, bloom_fpr",
            format!("{}, {}", c.bloom, c.bloom_rate),
            format!("filter_bits {}", options.filter_bits),
        ),
        MappedSetting::mapped(
            "level_size_ratio",
            c.level_ratio,
            format!("level_ratio {}", options.level_ratio),
        ),
        MappedSetting::mapped(
            "default_isolation_level",
            c.isolation,
            format!("isolation {isolation:?}"),
        ),
        // In Perigee durability is an option of the database, set at each open and not stored.
        MappedSetting::unmapped("sync_mode", sync),
        MappedSetting::unmapped("min_levels", c.min_levels),
        MappedSetting::unmapped("dividing_level_offset", c.dividing_level_offset),
        MappedSetting::unmapped("enable_block_indexes", c.block_indexes),
        MappedSetting::unmapped("index_sample_ratio", c.index_sample),
        MappedSetting::unmapped("block_index_prefix_len", c.index_prefix),
        MappedSetting::unmapped("skip_list_max_level", c.skip_list_levels),
        MappedSetting::unmapped("skip_list_probability", c.skip_list_probability),
        MappedSetting::unmapped("min_disk_space", c.min_disk),
        MappedSetting::unmapped("l1_file_count_trigger", c.l1_trigger),
        MappedSetting::unmapped("l0_queue_stall_threshold", c.l0_stall),
        MappedSetting::unmapped("tombstone_density_trigger", c.tombstone_density),
        MappedSetting::unmapped("tombstone_density_min_entries", c.tombstone_entries),
        MappedSetting::unmapped("use_btree", c.btree),
        MappedSetting::unmapped("object_lazy_compaction", c.object_lazy),
        MappedSetting::unmapped("object_prefetch_compaction", c.object_prefetch),
    ];
    if !c.comparator_context().is_empty() {
        all.push(MappedSetting::unmapped("comparator_ctx_str", c.comparator_context()));
    }
    (options, all)
}

/// Returns the settings as Perigee's C library stores them: in its form of `config.ini`, with a
/// section `family`. Values that it would refuse are clamped.
pub fn c_library_settings(c: &FamilyConfig, comparator: KeyComparator) -> String {
    let mut c = *c;
    c.bloom_rate = false_positive_rate(&c);
    if !(0.0..=1.0).contains(&c.tombstone_density) {
        c.tombstone_density = 0.0;
    }
    if c.sync_interval_us == 0 {
        c.sync_interval_us = 128_000;
    }
    for n in [
        &mut c.min_levels,
        &mut c.dividing_level_offset,
        &mut c.skip_list_levels,
        &mut c.l1_trigger,
        &mut c.l0_stall,
    ] {
        *n = (*n).max(0);
    }
    c.object_lazy = c.object_lazy.clamp(0, 1);
    let compression = get_by_index(&COMPRESSIONS, c.compression)
        .map_or("LZ4".to_owned(), |(name, _)| name.to_uppercase());
    let mut text = String::from("[family]\n");
    let all: [(&str, &dyn Display); 24] = [
        ("write_buffer_size", &c.write_buffer),
        ("level_size_ratio", &c.level_ratio),
        ("min_levels", &c.min_levels),
        ("dividing_level_offset", &c.dividing_level_offset),
        ("value_threshold", &c.value_threshold),
        ("enable_bloom_filter", &c.bloom),
        ("bloom_fpr", &c.bloom_rate),
        ("enable_block_indexes", &c.block_indexes),
        ("index_sample_ratio", &c.index_sample),
        ("block_index_prefix_len", &c.index_prefix),
        ("sync_mode", &c.sync),
        ("sync_interval_us", &c.sync_interval_us),
        ("skip_list_max_level", &c.skip_list_levels),
        ("skip_list_probability", &c.skip_list_probability),
        ("l1_file_count_trigger", &c.l1_trigger),
        ("l0_queue_stall_threshold", &c.l0_stall),
        ("tombstone_density_trigger", &c.tombstone_density),
        ("tombstone_density_min_entries", &c.tombstone_entries),
        ("min_disk_space", &c.min_disk),
        ("use_btree", &c.btree),
        ("object_lazy_compaction", &c.object_lazy),
        ("object_prefetch_compaction", &c.object_prefetch),
        ("compression_algorithm", &compression),
        ("default_isolation_level", &c.isolation),
    ];
    for (name, value) in all {
        text.push_str(&format!("{name} = {value}\n"));
    }
    text.push_str(&format!("comparator_name = {}\n", comparators::comparator_name(comparator)));
    text
}

fn comparator_or_default(comparator: &str) -> &str {
    if comparator.is_empty() {
        comparators::comparator_name(KeyComparator::Bytes)
    } else {
        comparator
    }
}
