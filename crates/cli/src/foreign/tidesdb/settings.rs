//! The settings of a family of TidesDB, and what becomes of them, as in our C library (`capi`). Pure.

use super::api::FamilyConfig;
use crate::foreign::entry::Setting;
use crate::foreign::orders;
use perigee::{Compression, FamilyOptions, Isolation, KeyOrder, limits};
use std::fmt::Display;

const COMPRESSIONS: [(&str, Compression); 5] = [
    ("none", Compression::None),
    ("snappy", Compression::Snappy),
    ("lz4", Compression::Lz4),
    ("zstd", Compression::Zstd(1)),
    ("lz4_fast", Compression::Lz4Fast(2)),
];
const SYNCS: [&str; 3] = ["none", "full", "interval"];

fn at<T: Copy>(all: &[T], index: i32) -> Option<T> {
    usize::try_from(index).ok().and_then(|i| all.get(i).copied())
}

/// The rate of false positives that is meant.
fn rate(c: &FamilyConfig) -> f64 {
    if c.bloom_rate > 0.0 && c.bloom_rate < 1.0 { c.bloom_rate } else { 0.01 }
}

/// The family's options under this key order, and the whole list for the report.
pub fn map(c: &FamilyConfig, order: KeyOrder) -> (FamilyOptions, Vec<Setting>) {
    let (compression, became) = at(&COMPRESSIONS, c.compression).unwrap_or(COMPRESSIONS[2]);
    let isolation = at(&Isolation::ALL, c.isolation).unwrap_or(Isolation::ReadCommitted);
    let mut options = FamilyOptions::new()
        .order(order)
        .memtable_bytes((c.write_buffer as u64).clamp(1 << 10, 2 << 30))
        .value_threshold(if c.value_threshold == 0 {
            512
        } else {
            c.value_threshold.min(limits::INLINE_VALUE_BYTES_MAX)
        })
        .compression(became)
        .level_ratio(c.level_ratio.clamp(2, 100) as u32)
        .isolation(Some(isolation));
    options = match c.bloom {
        0 => options.filter_bits(0),
        _ => options.filter_rate(rate(c)),
    };
    let sync = match at(&SYNCS, c.sync).unwrap_or("unknown") {
        "interval" => format!("interval, {} us", c.sync_interval_us),
        other => other.to_owned(),
    };
    let mut all = vec![
        Setting::kept("comparator_name", shown(&c.comparator()), order.name()),
        Setting::kept(
            "write_buffer_size",
            c.write_buffer,
            format!("memtable_bytes {}", options.memtable_bytes),
        ),
        Setting::kept(
            "klog_value_threshold",
            c.value_threshold,
            format!("value_threshold {}", options.value_threshold),
        ),
        Setting::kept("compression_algorithm", compression, format!("compression {became:?}")),
        Setting::kept(
            "enable_bloom_filter, bloom_fpr",
            format!("{}, {}", c.bloom, c.bloom_rate),
            format!("filter_bits {}", options.filter_bits),
        ),
        Setting::kept("level_size_ratio", c.level_ratio, format!("level_ratio {}", options.level_ratio)),
        Setting::kept("default_isolation_level", c.isolation, format!("isolation {isolation:?}")),
        // Ours is the database's, and not stored: who opens it says it.
        Setting::none("sync_mode", sync),
        Setting::none("min_levels", c.min_levels),
        Setting::none("dividing_level_offset", c.dividing_level_offset),
        Setting::none("enable_block_indexes", c.block_indexes),
        Setting::none("index_sample_ratio", c.index_sample),
        Setting::none("block_index_prefix_len", c.index_prefix),
        Setting::none("skip_list_max_level", c.skip_list_levels),
        Setting::none("skip_list_probability", c.skip_list_probability),
        Setting::none("min_disk_space", c.min_disk),
        Setting::none("l1_file_count_trigger", c.l1_trigger),
        Setting::none("l0_queue_stall_threshold", c.l0_stall),
        Setting::none("tombstone_density_trigger", c.tombstone_density),
        Setting::none("tombstone_density_min_entries", c.tombstone_entries),
        Setting::none("use_btree", c.btree),
        Setting::none("object_lazy_compaction", c.object_lazy),
        Setting::none("object_prefetch_compaction", c.object_prefetch),
    ];
    if !c.comparator_context().is_empty() {
        all.push(Setting::none("comparator_ctx_str", c.comparator_context()));
    }
    (options, all)
}

/// The same as our C library stores them: its form of `config.ini`, in a section `family`.
/// What it would refuse is brought into its range.
pub fn for_c(c: &FamilyConfig, order: KeyOrder) -> String {
    let mut c = *c;
    c.bloom_rate = rate(&c);
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
    let compression =
        at(&COMPRESSIONS, c.compression).map_or("LZ4".to_owned(), |(name, _)| name.to_uppercase());
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
    text.push_str(&format!("comparator_name = {}\n", orders::name_of(order)));
    text
}

fn shown(comparator: &str) -> &str {
    if comparator.is_empty() { orders::name_of(KeyOrder::Bytes) } else { comparator }
}
