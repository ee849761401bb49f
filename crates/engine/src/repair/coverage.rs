//! Which sequence numbers the readable log records cover, and which ones the database proves to
//! have existed. Every number that is proved and not covered was lost, and is attributed to a byte
//! range of a segment. Must not read files.

use super::report::{LostRange, RepairSummary};
use super::survey::Survey;
use perigee_base::bug::{self, Bug};
use perigee_base::file_header::{FileKind, HEADER_BYTES};
use perigee_base::{Error, FileId};
use perigee_file::filename;
use std::collections::BTreeMap;

/// A place in a segment where no record could be read.
struct UnreadRange {
    loss: LostRange,
    /// First sequence number that may have been there.
    first_seq: u64,
    /// Last sequence number that may have been there.
    last_seq: u64,
    /// The end of the log cut a record short, as a crash does: a loss only if a lost number is
    /// proved.
    torn: bool,
    /// Numbers that were lost there.
    lost_seqs: Option<(u64, u64)>,
}

/// Where the readable records of a segment end.
#[derive(Clone, Copy)]
struct SegmentEnd {
    id: FileId,
    next_seq: u64,
    offset: u64,
}

/// The sequence numbers of the log.
#[derive(Default)]
pub struct SeqCoverage {
    /// Covered ranges, merged: first number, and the number behind the last.
    covered: BTreeMap<u64, u64>,
    /// Every number up to this one existed and was durable.
    proven_seq: u64,
    /// First number of the log, if the manifest is whole.
    start: Option<u64>,
    /// First number of each segment, where it is known.
    firsts: BTreeMap<u64, FileId>,
    ends: Vec<SegmentEnd>,
    unread: Vec<UnreadRange>,
}

impl SeqCoverage {
    /// Knows what the manifest proves.
    pub fn new(survey: &Survey) -> SeqCoverage {
        let mut coverage = SeqCoverage::default();
        if bug::is_active(Bug::RepairIgnoresCleanClose) {
            return coverage;
        }
        let catalog = &survey.catalog;
        coverage.prove_up_to(catalog.durable_seq);
        coverage.prove_up_to(catalog.clean_close.map_or(0, |clean| clean.last_seq));
        for f in catalog.families.values() {
            let newest =
                f.tables.values().map(|t| t.meta.global_seq.unwrap_or(t.meta.summary.largest_seq));
            coverage.prove_up_to(newest.max().unwrap_or_default().max(f.flushed).0);
        }
        if survey.is_manifest_complete {
            coverage.start = catalog.logs.first().map(|(_, first)| *first);
            catalog.logs.iter().for_each(|(id, first)| coverage.add_segment_start(*id, *first));
        }
        coverage
    }

    /// Everything up to `seq` existed.
    pub fn prove_up_to(&mut self, seq: u64) {
        self.proven_seq = self.proven_seq.max(seq);
    }

    /// Segment `id` begins with number `first` (0: not known).
    pub fn add_segment_start(&mut self, id: FileId, first: u64) {
        if first > 0 {
            self.firsts.entry(first).or_insert(id);
        }
    }

    /// First number of segment `id`, where that is known; else 0.
    pub fn segment_first_seq(&self, id: FileId) -> u64 {
        self.firsts.iter().find(|(_, of)| **of == id).map_or(0, |(first, _)| *first)
    }

    /// A record of segment `id` with numbers from `first` on to before `next` was read; it ends at
    /// `offset`.
    pub fn add_covered(&mut self, id: FileId, (first, next): (u64, u64), offset: u64) {
        match self.ends.last_mut() {
            Some(end) if end.id == id => (end.next_seq, end.offset) = (next, offset),
            _ => self.ends.push(SegmentEnd { id, next_seq: next, offset }),
        }
        if let Some(open) =
            self.unread.last_mut().filter(|u| u.last_seq == u64::MAX && u.first_seq <= first)
        {
            open.last_seq = first.saturating_sub(1);
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
    }

    /// Nothing could be read at that place, which may have held the numbers from `first` on.
    pub fn add_unread(&mut self, loss: LostRange, first: u64, torn: bool) {
        self.unread.push(UnreadRange {
            loss,
            first_seq: first,
            last_seq: u64::MAX,
            torn,
            lost_seqs: None,
        });
    }

    /// The record with these numbers could not be read.
    pub fn add_unread_record(&mut self, loss: LostRange, (first, next): (u64, u64)) {
        let last = next.saturating_sub(1);
        self.unread.push(UnreadRange {
            loss,
            first_seq: first,
            last_seq: last,
            torn: false,
            lost_seqs: None,
        });
    }

    /// Numbers that are proved and not covered, cut at the beginnings of segments.
    fn find_gaps(&self, start: u64) -> Vec<(u64, u64)> {
        let (mut gaps, mut at) = (Vec::new(), start);
        let behind = self.proven_seq.saturating_add(1);
        for (from, to) in self.covered.iter().map(|(f, t)| (*f, *t)).chain([(behind, behind)]) {
            while at < from {
                let cut = self.firsts.range(at + 1..from).next().map_or(from, |(first, _)| *first);
                gaps.push((at, cut - 1));
                at = cut;
            }
            at = at.max(to);
        }
        gaps
    }

    /// Lists in the report every byte range that is not accounted for.
    pub fn report_losses(mut self, survey: &Survey, report: &mut RepairSummary) {
        let start = self.start.or_else(|| self.covered.keys().next().copied());
        for gap in start.map(|start| self.find_gaps(start)).unwrap_or_default() {
            self.attribute_gap(survey, gap, report);
        }
        self.check_clean_end(survey);
        for u in std::mem::take(&mut self.unread) {
            if u.torn && u.lost_seqs.is_none() {
                report.warn(format!(
                    "{}: the log ends inside a record, as a crash leaves it, and nothing proves that this record was \
                     durable: {} bytes at offset {} were left out",
                    u.loss.file,
                    u.loss.bytes.unwrap_or(0),
                    u.loss.offset.unwrap_or(0),
                ));
            } else {
                let sequences =
                    u.lost_seqs.map(|(first, last)| (first, self.gap_end(survey, last)));
                report.add_lost_range(LostRange { sequences, ..u.loss });
            }
        }
    }

    /// Attributes a gap to the place that held it: one that could not be read, a missing segment,
    /// or the end of a segment.
    fn attribute_gap(
        &mut self,
        survey: &Survey,
        (first, last): (u64, u64),
        report: &mut RepairSummary,
    ) {
        let place = self.unread.iter_mut().find(|u| u.first_seq <= first && first <= u.last_seq);
        if let Some(u) = place {
            let known = u.lost_seqs.unwrap_or((first, last));
            u.lost_seqs = Some((known.0.min(first), known.1.max(last)));
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
            let known = missing.sequences.map_or(first, |(known, _)| known.min(first));
            missing.sequences = Some((known, self.gap_end(survey, last)));
            return;
        }
        let offset = end.filter(|end| end.id == id).map_or(HEADER_BYTES as u64, |end| end.offset);
        let why = Error::corruption("the log segment ends before operations that were durable")
            .expected(
                format_args!("operation {last}"),
                format_args!("operation {}", first.saturating_sub(1)),
            );
        let mut loss = LostRange::new(&file, why.at(&file, offset));
        loss.bytes = self.missing_bytes(survey, id, offset);
        self.unread.push(UnreadRange {
            loss,
            first_seq: first,
            last_seq: last,
            torn: false,
            lost_seqs: Some((first, last)),
        });
    }

    /// The last number of a gap. At the end of the log what is proved is not all that may have been
    /// there, unless it was closed.
    fn gap_end(&self, survey: &Survey, last: u64) -> Option<u64> {
        let open = last >= self.proven_seq && survey.catalog.clean_close.is_none();
        (!open).then_some(last)
    }

    /// Bytes from `offset` on that the clean close says were there, or else those of the file.
    fn missing_bytes(&self, survey: &Survey, id: FileId, offset: u64) -> Option<u64> {
        let clean =
            survey.catalog.clean_close.filter(|clean| clean.log == id).map(|clean| clean.bytes);
        let len = || survey.dir.file_len(&filename::file_name(id, FileKind::Wal)).ok().flatten();
        clean.or_else(len).map(|end| end.saturating_sub(offset)).filter(|bytes| *bytes > 0)
    }

    /// The clean close recorded the exact end of the log: a shorter or longer segment is listed
    /// even if no operation is missing.
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
        let why = Error::corruption("the log is not as the clean close left it").at(&file, from);
        let mut loss =
            LostRange::new(&file, why.expected(format_args!("{} bytes", clean.bytes), len));
        (loss.bytes, loss.entries) = (Some(len.max(clean.bytes) - from), Some(0));
        self.add_unread_record(loss, (u64::MAX, u64::MAX));
    }
}
