//! The segments of the log, and the writer of the newest segment.

use super::retention_check::RetentionCheck;
use super::spare_segment::spare_request_offset;
use crate::catalog::retained_logs::LogSpan;
use perigee_base::{FileId, SeqNo};
use perigee_file::log::LogWriter;
use std::collections::VecDeque;
use std::ops::Range;

/// An older segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSegment {
    /// File id.
    pub id: FileId,
    /// LSN of its first record.
    pub first_lsn: SeqNo,
    /// Size in bytes.
    pub bytes: u64,
}

/// The state protected by the commit section.
#[derive(Debug)]
pub struct Appender {
    /// Writer of the newest segment.
    pub writer: LogWriter,
    /// LSN of its first record.
    pub first_lsn: SeqNo,
    /// LSN of the next operation.
    pub next_lsn: SeqNo,
    /// Older segments, oldest first.
    pub older_segments: VecDeque<LogSegment>,
    /// Size of the newest segment at which a spare segment is requested.
    request_spare_at: u64,
    /// Bytes of records appended since open.
    pub logged_bytes: u64,
    /// Schedule of the checks for excessive log retention.
    pub retention_check: RetentionCheck,
}

impl Appender {
    /// Creates the state for the open segment `writer`, which holds the operations `lsns`.
    pub(super) fn new(
        older: VecDeque<LogSegment>,
        writer: LogWriter,
        lsns: Range<SeqNo>,
        expected_bytes: u64,
    ) -> Appender {
        let (request_spare_at, retention_check) =
            (spare_request_offset(expected_bytes), RetentionCheck::default());
        Appender {
            writer,
            first_lsn: lsns.start,
            next_lsn: lsns.end,
            older_segments: older,
            request_spare_at,
            logged_bytes: 0,
            retention_check,
        }
    }
    /// Starts appending to a new segment, which the manifest already contains.
    pub fn switch_segment(&mut self, writer: LogWriter) {
        let old = std::mem::replace(&mut self.writer, writer);
        self.request_spare_at = spare_request_offset(old.offset());
        self.older_segments.push_back(LogSegment {
            id: old.id(),
            first_lsn: self.first_lsn,
            bytes: old.offset(),
        });
        check!(
            self.first_lsn <= self.next_lsn,
            "a segment starts where the one before it ends",
            self.first_lsn,
            self.next_lsn
        );
        check!(old.id() < self.writer.id(), "the ids of log segments ascend", old.id());
        self.first_lsn = self.next_lsn;
    }
    /// Returns the expected bytes of the next segment when it is time to create it; once per
    /// segment.
    pub fn take_spare_request(&mut self) -> Option<u64> {
        let bytes = self.writer.offset();
        if bytes < self.request_spare_at {
            return None;
        }
        self.request_spare_at = u64::MAX;
        Some(bytes.saturating_mul(2))
    }
    /// Returns all segments with their current sizes, oldest first.
    pub fn segments(&self) -> impl Iterator<Item = LogSegment> + '_ {
        let newest = LogSegment {
            id: self.writer.id(),
            first_lsn: self.first_lsn,
            bytes: self.writer.offset(),
        };
        self.older_segments.iter().copied().chain([newest])
    }
    /// Returns all segments with their first LSNs.
    pub fn segment_first_lsns(&self) -> Vec<(FileId, SeqNo)> {
        self.segments().map(|s| (s.id, s.first_lsn)).collect()
    }
    /// Returns the bytes of all segments.
    pub fn total_bytes(&self) -> u64 {
        self.segments().map(|s| s.bytes).sum()
    }
    /// Returns the older segments, each with the LSN after its last operation.
    fn older_with_ends(&self) -> impl Iterator<Item = (&LogSegment, SeqNo)> {
        let ends = self.older_segments.iter().skip(1).map(|s| s.first_lsn).chain([self.first_lsn]);
        self.older_segments.iter().zip(ends)
    }
    /// Returns the bytes of the segment that holds `lsn` and of all later ones.
    pub fn bytes_from(&self, lsn: SeqNo) -> u64 {
        let kept = self.older_with_ends().filter(|(_, end)| *end > lsn);
        kept.map(|(s, _)| s.bytes).sum::<u64>() + self.writer.offset()
    }
    /// Returns the first LSN of the segment that holds `lsn`.
    pub fn segment_start_of(&self, lsn: SeqNo) -> SeqNo {
        let starts = self.segments().map(|s| s.first_lsn);
        starts.filter(|start| *start <= lsn).max().unwrap_or(SeqNo::ZERO)
    }
    /// Returns true if the newest segment holds operations.
    pub fn has_operations(&self) -> bool {
        self.next_lsn > self.first_lsn
    }
    /// Returns the end of the segment that holds `lsn`: the first LSN of its successor.
    pub fn segment_end_of(&self, lsn: SeqNo) -> SeqNo {
        let starts = self.segments().map(|s| s.first_lsn);
        starts.filter(|start| *start > lsn).min().unwrap_or(self.next_lsn)
    }
    /// Returns the older segments (a prefix of the list) that only hold operations before
    /// `oldest_needed`.
    pub fn segments_below(&self, oldest_needed: SeqNo) -> Vec<LogSpan> {
        let span = |(s, end): (&LogSegment, SeqNo)| LogSpan {
            id: s.id,
            first_lsn: s.first_lsn,
            end_lsn: end,
            bytes: s.bytes,
        };
        check!(
            oldest_needed <= self.next_lsn,
            "what is needed was logged",
            oldest_needed,
            self.next_lsn
        );
        self.older_with_ends().take_while(|(_, end)| *end <= oldest_needed).map(span).collect()
    }
    /// Removes segments that [`Appender::segments_below`] returned and the manifest dropped.
    pub fn remove_segments(&mut self, gone: &[LogSpan]) {
        let is_gone = |s: &LogSegment| gone.iter().any(|g| g.id == s.id);
        check!(
            self.older_segments.iter().skip_while(|s| is_gone(s)).all(|s| !is_gone(s)),
            "the oldest segments are removed first",
            gone
        );
        self.older_segments.retain(|s| !is_gone(s));
        check!(
            gone.iter().all(|g| g.id != self.writer.id() && g.end_lsn <= self.first_lsn),
            "the newest segment is never removed",
            gone,
            self.first_lsn
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::retained_logs::split_retained;
    use perigee_base::violation;

    fn appender() -> Appender {
        let segment = |id, first| LogSegment { id: FileId(id), first_lsn: SeqNo(first), bytes: 80 };
        let older = VecDeque::from([segment(1, 1), segment(2, 5)]);
        Appender::new(older, LogWriter::read_only(FileId(3), 1), SeqNo(9)..SeqNo(12), 0)
    }

    #[test]
    fn assertions_detect_violations() {
        let newest = appender().segments_below(SeqNo(12))[1];
        let cases: [(&str, &dyn Fn()); 4] = [
            ("the oldest segments are removed first", &|| appender().remove_segments(&[newest])),
            ("what is needed was logged", &|| drop(appender().segments_below(SeqNo(99)))),
            ("the ids of log segments ascend", &|| {
                appender().switch_segment(LogWriter::read_only(FileId(2), 1));
            }),
            ("retained segments have no gaps", &|| {
                let gap = [LogSpan { end_lsn: SeqNo(3), ..newest }, newest];
                split_retained(&gap, &[], u64::MAX);
            }),
        ];
        for (invariant, work) in cases {
            let message = violation(work);
            assert!(message.contains(invariant), "{invariant}: {message}");
        }
    }
}
