//! Tracks which sequence numbers the readable log records cover, and which ones are proven to have
//! existed. Every number that is proven and not covered was lost, and is attributed to a byte range
//! of a segment. Reads no log contents.

use super::report::{DataLoss, LostSequences, RepairReport};
use super::survey::Survey;
use perigee_base::bug::Bug;
use perigee_base::{Error, FileId, FileKind, HEADER_BYTES, SeqNo, bug};
use perigee_file::filename;
use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};

/// A part of a segment in which no record could be read.
struct UnreadRange {
    loss: DataLoss,
    /// First sequence number that may have been there.
    first_seq: SeqNo,
    /// Last sequence number that may have been there.
    last_seq: SeqNo,
    /// The log ends inside a record, as after a crash: a loss only if a lost sequence number is
    /// proven.
    torn: bool,
    /// Range of the sequence numbers lost there.
    lost_seqs: Option<RangeInclusive<SeqNo>>,
}

/// The end of the readable records of a segment.
#[derive(Clone, Copy)]
struct SegmentEnd {
    id: FileId,
    next_seq: SeqNo,
    offset: u64,
}

/// The sequence numbers of the log.
#[derive(Default)]
pub struct SeqCoverage {
    /// Covered ranges, merged: from the first number to the number after the last.
    covered: BTreeMap<SeqNo, SeqNo>,
    /// Every sequence number up to this one existed and was durable.
    proven_seq: SeqNo,
    /// First sequence number of the log, if the manifest is complete.
    start: Option<SeqNo>,
    /// First sequence number of each segment, if known.
    firsts: BTreeMap<SeqNo, FileId>,
    ends: Vec<SegmentEnd>,
    unread: Vec<UnreadRange>,
}

impl SeqCoverage {
    /// Creates the coverage with what the manifest proves.
    pub fn new(survey: &Survey) -> SeqCoverage {
        let mut coverage = SeqCoverage::default();
        if bug::is_active(Bug::RepairIgnoresCleanClose) {
            return coverage;
        }
        let catalog = &survey.catalog;
        coverage.prove_up_to(catalog.durable_seq);
        coverage.prove_up_to(catalog.clean_close.map_or(SeqNo::ZERO, |clean| clean.last_seq));
        for f in catalog.families.values() {
            let newest =
                f.tables.values().map(|t| t.meta.global_seq.unwrap_or(t.meta.summary.largest_seq));
            coverage.prove_up_to(newest.max().unwrap_or_default().max(f.flushed));
        }
        if survey.is_manifest_complete {
            coverage.start = catalog.logs.first().map(|(_, first)| *first);
            catalog.logs.iter().for_each(|(id, first)| coverage.add_segment_start(*id, *first));
        }
        coverage
    }

    /// Records that everything up to `seq` existed.
    pub fn prove_up_to(&mut self, seq: SeqNo) {
        self.proven_seq = self.proven_seq.max(seq);
    }

    /// Records that segment `id` starts at sequence number `first` (0: not known).
    pub fn add_segment_start(&mut self, id: FileId, first: SeqNo) {
        if first > SeqNo::ZERO {
            self.firsts.entry(first).or_insert(id);
        }
    }

    /// Returns the first sequence number of segment `id`, or 0 if it is not known.
    pub fn segment_first_seq(&self, id: FileId) -> SeqNo {
        self.firsts.iter().find(|(_, of)| **of == id).map_or(SeqNo::ZERO, |(first, _)| *first)
    }

    /// Records that a record of segment `id` with the sequence numbers `seqs` was read,
    /// which ends at `offset`.
    pub fn add_covered(&mut self, id: FileId, seqs: Range<SeqNo>, offset: u64) {
        let Range { start: first, end: next } = seqs;
        match self.ends.last_mut() {
            Some(end) if end.id == id => (end.next_seq, end.offset) = (next, offset),
            _ => self.ends.push(SegmentEnd { id, next_seq: next, offset }),
        }
        if let Some(open) =
            self.unread.last_mut().filter(|u| u.last_seq == SeqNo::MAX && u.first_seq <= first)
        {
            open.last_seq = first.prev();
        }
        let (mut from, mut to) = (first, next);
        while let Some((&f, &t)) =
            self.covered.range(..=to).next_back().filter(|(_, t)| **t >= from)
        {
            (from, to) = (from.min(f), to.max(t));
            self.covered.remove(&f);
        }
        if from < to {
            self.covered.insert(from, to);
        }
        check_slow!(
            self.covered.iter().zip(self.covered.keys().skip(1)).all(|((_, to), from)| to < from),
            "covered ranges are merged",
            self.covered
        );
    }

    /// Records a part that could not be read and may have contained sequence numbers from `first`
    /// on.
    pub fn add_unread(&mut self, loss: DataLoss, first: SeqNo, torn: bool) {
        self.unread.push(UnreadRange {
            loss,
            first_seq: first,
            last_seq: SeqNo::MAX,
            torn,
            lost_seqs: None,
        });
    }

    /// Records that the record with these sequence numbers could not be read.
    pub fn add_unread_record(&mut self, loss: DataLoss, seqs: Range<SeqNo>) {
        self.unread.push(UnreadRange {
            loss,
            first_seq: seqs.start,
            last_seq: seqs.end.prev(),
            torn: false,
            lost_seqs: None,
        });
    }

    /// Returns the proven but uncovered ranges of sequence numbers, split at segment starts.
    fn find_gaps(&self, start: SeqNo) -> Vec<RangeInclusive<SeqNo>> {
        let (mut gaps, mut at) = (Vec::new(), start);
        let end_seq = SeqNo(self.proven_seq.0.saturating_add(1));
        for (from, to) in self.covered.iter().map(|(f, t)| (*f, *t)).chain([(end_seq, end_seq)]) {
            while at < from {
                let cut =
                    self.firsts.range(at.plus(1)..from).next().map_or(from, |(first, _)| *first);
                gaps.push(at..=cut.prev());
                at = cut;
            }
            at = at.max(to);
        }
        check_slow!(
            gaps.is_sorted_by(|a: &RangeInclusive<SeqNo>, b| a.end() < b.start())
                && gaps.iter().all(|gap| gap.start() <= gap.end()),
            "gaps ascend and do not overlap",
            gaps
        );
        gaps
    }

    /// Reports every byte range that is not accounted for.
    pub fn report_losses(mut self, survey: &Survey, report: &mut RepairReport) {
        let start = self.start.or_else(|| self.covered.keys().next().copied());
        for gap in start.map(|start| self.find_gaps(start)).unwrap_or_default() {
            self.attribute_gap(survey, gap, report);
        }
        self.check_clean_end(survey);
        for u in std::mem::take(&mut self.unread) {
            if u.torn && u.lost_seqs.is_none() {
                report.warn(format!(
                    "{}: the log ends inside a record, as after a crash, and nothing proves that \
                     this record was durable: {} bytes at offset {} were left out",
                    u.loss.file,
                    u.loss.bytes.unwrap_or(0),
                    u.loss.offset.unwrap_or(0),
                ));
            } else {
                let sequences = u.lost_seqs.map(|seqs| LostSequences {
                    first: seqs.start().0,
                    last: self.gap_end(survey, *seqs.end()).map(|seq| seq.0),
                });
                report.add_lost_range(DataLoss { sequences, ..u.loss });
            }
        }
    }

    /// Attributes a gap to its location: a part that could not be read, a missing segment, or the
    /// end of a segment.
    fn attribute_gap(
        &mut self,
        survey: &Survey,
        gap: RangeInclusive<SeqNo>,
        report: &mut RepairReport,
    ) {
        let (first, last) = gap.into_inner();
        let unread = self.unread.iter_mut().find(|u| u.first_seq <= first && first <= u.last_seq);
        if let Some(u) = unread {
            let (known_first, known_last) =
                u.lost_seqs.take().map_or((first, last), RangeInclusive::into_inner);
            u.lost_seqs = Some(known_first.min(first)..=known_last.max(last));
            return;
        }
        let end = self.ends.iter().rev().find(|end| end.next_seq == first).copied();
        let segment = self.firsts.range(..=first).next_back().map(|(_, id)| *id);
        let Some(id) =
            segment.filter(|_| self.firsts.contains_key(&first)).or(end.map(|e| e.id)).or(segment)
        else {
            return;
        };
        let file = filename::file_name(id, FileKind::Wal);
        if let Some(missing) = report.lost.iter_mut().find(|l| l.file == file && l.offset.is_none())
        {
            let first = missing.sequences.map_or(first.0, |known| known.first.min(first.0));
            let last = self.gap_end(survey, last).map(|seq| seq.0);
            missing.sequences = Some(LostSequences { first, last });
            return;
        }
        let offset = end.filter(|end| end.id == id).map_or(HEADER_BYTES as u64, |end| end.offset);
        let why = Error::corruption("the log segment ends before operations that were durable")
            .expected(format_args!("operation {last}"), format_args!("operation {}", first.prev()));
        let mut loss = DataLoss::new(&file, why.at(&file, offset));
        loss.bytes = self.missing_bytes(survey, id, offset);
        self.unread.push(UnreadRange {
            loss,
            first_seq: first,
            last_seq: last,
            torn: false,
            lost_seqs: Some(first..=last),
        });
    }

    /// Returns the last sequence number of a gap, or `None` at the end of a log that was not closed
    /// cleanly: more than is proven may have been lost there.
    fn gap_end(&self, survey: &Survey, last: SeqNo) -> Option<SeqNo> {
        let open = last >= self.proven_seq && survey.catalog.clean_close.is_none();
        (!open).then_some(last)
    }

    /// Returns the bytes from `offset` to the end recorded by the clean close, or else to the end
    /// of the file.
    fn missing_bytes(&self, survey: &Survey, id: FileId, offset: u64) -> Option<u64> {
        let clean =
            survey.catalog.clean_close.filter(|clean| clean.log == id).map(|clean| clean.bytes);
        let len = || survey.dir.file_len(&filename::file_name(id, FileKind::Wal)).ok().flatten();
        clean.or_else(len).map(|end| end.saturating_sub(offset)).filter(|bytes| *bytes > 0)
    }

    /// Checks the end of the log that the clean close recorded: a shorter or longer segment is
    /// reported even if no operation is missing.
    fn check_clean_end(&mut self, survey: &Survey) {
        let Some(clean) =
            survey.catalog.clean_close.filter(|_| !bug::is_active(Bug::RepairIgnoresCleanClose))
        else {
            return;
        };
        let file = filename::file_name(clean.log, FileKind::Wal);
        self.unread.iter_mut().filter(|u| u.loss.file == file).for_each(|u| u.torn = false);
        let Ok(Some(len)) = survey.dir.file_len(&file) else { return };
        let read =
            self.ends.iter().rev().find(|end| end.id == clean.log).map_or(0, |end| end.offset);
        let known = self.unread.iter().any(|u| u.loss.file == file);
        if known || (len == clean.bytes && read == clean.bytes) {
            return;
        }
        let from = read.min(clean.bytes);
        let why = Error::corruption("the log was changed after the clean close").at(&file, from);
        let mut loss =
            DataLoss::new(&file, why.expected(format_args!("{} bytes", clean.bytes), len));
        (loss.bytes, loss.entries) = (Some(len.max(clean.bytes) - from), Some(0));
        self.add_unread_record(loss, SeqNo::MAX..SeqNo::MAX);
    }
}
