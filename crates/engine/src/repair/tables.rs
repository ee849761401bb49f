//! Gathers the entries of each table. An intact table is merged as it is; the readable entries of a
//! damaged one are written to an interim table first, so that the merge only reads intact files.

use super::is_damage;
use super::repair_builder::RepairBuilder;
use super::report::{DataLoss, RepairReport};
use super::survey::Survey;
use perigee_base::limits::FAMILIES_MAX;
use perigee_base::{
    EntryRef, Error, ErrorKind, FamilyId, FileId, FileKind, KeyComparator, Result, SeqNo,
};
use perigee_file::{KlogSalvager, filename};

/// Ids of column families created for tables without a known one, counting down from here.
const STRAY_FAMILY_BASE: u32 = 1 << 30;
const _: () = assert!(STRAY_FAMILY_BASE as usize / 2 > FAMILIES_MAX, "no id of the manifest");

/// Gathers the entries of all tables.
pub fn gather_tables(
    survey: &Survey,
    builder: &mut RepairBuilder,
    report: &mut RepairReport,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let bytes = |id: &FileId| {
        survey.dir.file_len(&filename::file_name(*id, FileKind::Klog)).ok().flatten().unwrap_or(0)
    };
    let total: u64 = survey.klogs.iter().map(bytes).sum();
    let mut done = 0;
    builder.open_vlogs(survey, report)?;
    for id in &survey.klogs {
        match gather_table(survey, *id, builder, report) {
            Err(e) if is_damage(&e) => {
                let file = filename::file_name(*id, FileKind::Klog);
                // A missing table is already reported.
                if !report.lost.iter().any(|l| l.file == file) {
                    report.add_lost_file(&file, None, e);
                }
            }
            other => other?,
        }
        done += bytes(id);
        progress(done, total);
    }
    Ok(())
}

fn gather_table(
    survey: &Survey,
    id: FileId,
    builder: &mut RepairBuilder,
    report: &mut RepairReport,
) -> Result<()> {
    let file = filename::file_name(id, FileKind::Klog);
    let table = KlogSalvager::open(&*survey.dir, id, survey.database)?;
    if table.family == Some(FamilyId::NONE) && !survey.is_manifest_trusted {
        report.warn(format!("{file} is part of an unfinished bulk load: it was left out"));
        return Ok(());
    }
    let (mut found, mut values, mut largest) = (0, Vec::new(), SeqNo::ZERO);
    let lost = table.read_entries(|e| {
        found += 1;
        largest = largest.max(e.seq);
        if let Err(why) = builder.check_value(&e.value) {
            values.push((why, e.key.to_vec()));
        }
        Ok(())
    })?;
    let stamp = survey.stamp(id);
    let families = if stamp.is_none() && largest == SeqNo::ZERO && found > 0 {
        // Merged with other versions, it would win or lose by chance.
        report.warn(format!(
            "{file} was bulk-loaded, possibly by an unfinished load, and its sequence number is \
             lost: its entries are in a separate column family"
        ));
        vec![stray_family_id(id)]
    } else {
        table_families(survey, id, &table, report)
    };
    for family in &families {
        let comparator =
            survey.catalog.families.get(family).map(|f| f.settings.comparator).or(table.comparator);
        builder.add_family(survey, *family, comparator);
    }
    let family_name = families.first().map(|f| builder.family_name(*f)).unwrap_or_default();
    let bad_values = values.len() as u64;
    report.tables += 1;
    check!(
        bad_values <= found,
        "a value that cannot be read belongs to an entry that was found",
        bad_values,
        found
    );
    report.entries_found += found - bad_values;
    let metadata_intact = survey.database.is_some_and(|db| table.check_metadata(db).is_ok());
    let is_intact = metadata_intact && lost.is_empty() && bad_values == 0;
    let comparator = families.first().map_or(KeyComparator::Bytes, |f| builder.comparator(*f));
    let ranges = table.read_range_tombstones(comparator);
    for family in families {
        if let Ok(ranges) = &ranges {
            builder.add_ranges(family, ranges)?;
        }
        if is_intact {
            builder.add_table(survey, id, family)?;
        } else if found > bad_values {
            write_interim_table(&table, family, stamp, builder)?;
        }
    }
    let counted =
        table.expected_entries.filter(|_| lost.len() == 1).map(|n| n.saturating_sub(found));
    if !is_intact && lost.is_empty() && bad_values == 0 {
        let why = Error::corruption("index, filter or properties are damaged; no entry was lost")
            .in_file(&file);
        report.lost.push(DataLoss {
            entries: Some(0),
            family: Some(family_name.clone()),
            ..DataLoss::new(&file, why)
        });
    }
    if let Err(e) = ranges {
        let e = e.wrap(ErrorKind::Corruption, "range tombstones of this table are lost");
        report.add_lost_file(&file, Some(&family_name), e);
    }
    for gap in lost {
        report.add_lost_file(&file, Some(&family_name), gap.error);
        if let Some(loss) = report.lost.last_mut() {
            (loss.offset, loss.bytes, loss.entries) = (Some(gap.offset), Some(gap.bytes), counted);
            (loss.first_key, loss.last_key) = (gap.last_key_before, gap.first_key_after);
        }
    }
    for (why, key) in values {
        let vlog = why.file().map_or_else(|| file.clone(), str::to_owned);
        report.add_lost_file(&vlog, Some(&family_name), why);
        if let Some(loss) = report.lost.last_mut() {
            (loss.first_key, loss.last_key, loss.entries) = (Some(key.clone()), Some(key), Some(1));
        }
    }
    Ok(())
}

/// Returns the column families of a table: those in the manifest, or else that in its header, or
/// else a new one.
fn table_families(
    survey: &Survey,
    id: FileId,
    table: &KlogSalvager,
    report: &mut RepairReport,
) -> Vec<FamilyId> {
    let known = survey.families_of(id);
    if !known.is_empty() {
        return known;
    }
    if let Some(family) = table.family {
        return vec![family];
    }
    let file = filename::file_name(id, FileKind::Klog);
    report.warn(format!(
        "the column family of {file} is unknown: its entries are in a separate column family"
    ));
    vec![stray_family_id(id)]
}

/// Returns the id of a column family for a single table.
fn stray_family_id(id: FileId) -> FamilyId {
    FamilyId(STRAY_FAMILY_BASE - (id.0 % u64::from(STRAY_FAMILY_BASE / 2)) as u32)
}

/// Writes the readable entries to an interim table.
fn write_interim_table(
    table: &KlogSalvager,
    family: FamilyId,
    stamp: Option<SeqNo>,
    builder: &mut RepairBuilder,
) -> Result<()> {
    let mut writer = builder.begin_interim_table(family)?;
    table.read_entries(|e: EntryRef<'_>| {
        let readable = builder.check_value(&e.value).is_ok();
        let e = EntryRef { seq: stamp.unwrap_or(e.seq), ..e };
        if readable { writer.add(e) } else { Ok(()) }
    })?;
    builder.add_interim_table(family, writer)
}
