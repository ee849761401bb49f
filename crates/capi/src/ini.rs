//! Settings of a column family as text, in the format of TidesDB's `config.ini`: sections, `key =
//! value`, comments after `;` or `#`.

use crate::abi::{
    COMPRESS_LZ4, COMPRESS_LZ4_FAST, COMPRESS_NONE, COMPRESS_SNAPPY, COMPRESS_ZSTD, FamilyConfig,
    SERIALIZABLE,
};
use crate::code::{CORRUPTION, INVALID_ARGS, Result};
use crate::ffi::{read_field, set_field};
use std::borrow::Cow;
use std::fmt::Write;
use std::str::FromStr;

const COMPRESSIONS: [(&str, i32); 5] = [
    ("NONE", COMPRESS_NONE),
    ("SNAPPY", COMPRESS_SNAPPY),
    ("LZ4", COMPRESS_LZ4),
    ("ZSTD", COMPRESS_ZSTD),
    ("LZ4_FAST", COMPRESS_LZ4_FAST),
];

/// Numeric settings with their names in files.
macro_rules! numbers {
    ($with:ident) => {
        $with! {
            write_buffer_size "write_buffer_size",
            level_size_ratio "level_size_ratio",
            min_levels "min_levels",
            dividing_level_offset "dividing_level_offset",
            klog_value_threshold "value_threshold",
            enable_bloom_filter "enable_bloom_filter",
            bloom_fpr "bloom_fpr",
            enable_block_indexes "enable_block_indexes",
            index_sample_ratio "index_sample_ratio",
            block_index_prefix_len "block_index_prefix_len",
            sync_mode "sync_mode",
            sync_interval_us "sync_interval_us",
            skip_list_max_level "skip_list_max_level",
            skip_list_probability "skip_list_probability",
            l1_file_count_trigger "l1_file_count_trigger",
            l0_queue_stall_threshold "l0_queue_stall_threshold",
            tombstone_density_trigger "tombstone_density_trigger",
            tombstone_density_min_entries "tombstone_density_min_entries",
            min_disk_space "min_disk_space",
            use_btree "use_btree",
            object_target_file_size "object_target_file_size",
            object_lazy_compaction "object_lazy_compaction",
            object_prefetch_compaction "object_prefetch_compaction",
        }
    };
}

/// Writes one section. Name, hook and cached values of the column family are not included.
pub fn write_section(section: &str, c: &FamilyConfig) -> Result<String> {
    let mut text = format!("[{section}]\n");
    macro_rules! put {
        ($($field:ident $key:literal,)*) => {$(let _ = writeln!(text, "{} = {}", $key, c.$field);)*};
    }
    numbers!(put);
    let compression = COMPRESSIONS
        .iter()
        .find(|(_, n)| *n == c.compression_algorithm)
        .map_or("NONE", |(name, _)| name);
    let _ = writeln!(text, "compression_algorithm = {compression}");
    let _ = writeln!(text, "default_isolation_level = {}", c.default_isolation_level);
    let (comparator, context) =
        (read_field(&c.comparator_name)?, read_field(&c.comparator_ctx_str)?);
    if [section, &comparator, &context].iter().any(|s| s.contains(char::is_control))
        || section.contains(']')
    {
        return Err(INVALID_ARGS.with_message(
            "a name with control characters or ']' cannot be written to a settings file",
        ));
    }
    let _ = writeln!(text, "comparator_name = {}", quoted(&comparator));
    if !context.is_empty() {
        let _ = writeln!(text, "comparator_ctx_str = {}", quoted(&context));
    }
    Ok(text)
}

/// Returns text as it is, or in quotes where a reader would truncate it.
fn quoted(text: &str) -> Cow<'_, str> {
    if text.trim() != text || text.contains(" ;") || text.starts_with('"') {
        Cow::Owned(format!("\"{text}\""))
    } else {
        Cow::Borrowed(text)
    }
}

/// Returns the text after `=` without its comment.
fn unquoted(value: &str) -> &str {
    let value = value.trim();
    if let Some((inner, _)) = value.strip_prefix('"').and_then(|v| v.rsplit_once('"')) {
        return inner;
    }
    value.split_once(" ;").map_or(value, |(v, _)| v.trim_end())
}

fn number<N: FromStr>(value: &str, line: usize) -> Result<N> {
    value
        .parse()
        .map_err(|_| CORRUPTION.with_text(format!("line {line}: {value:?} is not a valid number")))
}

fn set_field_from_text(c: &mut FamilyConfig, key: &str, value: &str, line: usize) -> Result<()> {
    macro_rules! get {
        ($($field:ident $key:literal,)*) => {
            match key {
                $($key => { c.$field = number(value, line)?; return Ok(()); })*
                _ => {}
            }
        };
    }
    numbers!(get);
    match key {
        "compression_algorithm" => {
            let known = COMPRESSIONS.iter().find(|(name, _)| name.eq_ignore_ascii_case(value));
            c.compression_algorithm = match known {
                Some((_, n)) => *n,
                None => {
                    return Err(
                        CORRUPTION.with_text(format!("line {line}: unknown compression {value:?}"))
                    );
                }
            };
        }
        "default_isolation_level" => {
            let level: i32 = number(value, line)?;
            if !(0..=SERIALIZABLE).contains(&level) {
                return Err(
                    CORRUPTION.with_text(format!("line {line}: unknown isolation level {level}"))
                );
            }
            c.default_isolation_level = level;
        }
        "comparator_name" => set_field(&mut c.comparator_name, value)?,
        "comparator_ctx_str" => set_field(&mut c.comparator_ctx_str, value)?,
        // Ignore settings of other versions.
        _ => {}
    }
    Ok(())
}

/// Reads a section and applies it to `c`; a missing section changes nothing.
pub fn read_section(text: &str, section: &str, c: &mut FamilyConfig) -> Result<()> {
    let mut ours = false;
    for (n, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with([';', '#']) {
            continue;
        }
        if let Some(rest) = line.strip_prefix('[') {
            let Some((name, _)) = rest.split_once(']') else {
                return Err(CORRUPTION
                    .with_text(format!("line {}: the section name does not end with ']'", n + 1)));
            };
            ours = name == section;
            continue;
        }
        let Some((key, value)) = line.split_once('=').or_else(|| line.split_once(':')) else {
            return Err(
                CORRUPTION.with_text(format!("line {}: expected a section or key = value", n + 1))
            );
        };
        if ours {
            set_field_from_text(c, key.trim(), unquoted(value), n + 1)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::config;

    #[test]
    fn written_section_reads_back_unchanged() {
        for context in ["plain", " spaces ", "a ; b", "\"quoted\"", "x=y", "ends ;", "\""] {
            let mut c = config::DEFAULT_FAMILY_CONFIG;
            set_field(&mut c.comparator_ctx_str, context).unwrap();
            let text = write_section("family", &c).unwrap();
            let mut back = config::DEFAULT_FAMILY_CONFIG;
            read_section(&text, "family", &mut back).unwrap();
            assert_eq!(read_field(&back.comparator_ctx_str).unwrap(), context, "{text}");
        }
    }
}
