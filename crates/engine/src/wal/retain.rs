//! Which segments of the log stay for readers, behind what recovery needs. Pure, but for trimming.
//!
//! Invariant: those that stay are the newest, without a gap, so that a reader who has come so far
//! can go on.

use perigee_base::file_header::FileKind;
use perigee_base::{FileId, Result};
use perigee_env::Dir;
use perigee_file::filename;

/// A complete segment, or the part of one that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSpan {
    /// Its file.
    pub id: FileId,
    /// LSN of its first record.
    pub first_lsn: u64,
    /// The LSN behind its last record.
    pub end_lsn: u64,
    /// Where its last record ends in the file; what is behind it does not count.
    pub bytes: u64,
}

/// How many of the oldest go, so that what stays has at most `limit` bytes.
pub fn excess_segments(spans: &[LogSpan], limit: u64) -> usize {
    let mut kept = 0u64;
    let newest = spans.iter().rev().take_while(|s| {
        kept = kept.saturating_add(s.bytes);
        kept <= limit
    });
    spans.len() - newest.count()
}

/// The segments that stay when `more` are no longer needed by recovery, and those that go.
pub fn split_retained(
    kept: &[LogSpan],
    more: &[LogSpan],
    limit: u64,
) -> (Vec<LogSpan>, Vec<LogSpan>) {
    let mut all = kept.to_vec();
    for span in more.iter().filter(|s| s.first_lsn < s.end_lsn) {
        // A gap ends what came before it: nobody could read on.
        if all.last().is_some_and(|last| last.end_lsn != span.first_lsn) {
            all.clear();
        }
        all.push(*span);
    }
    let stay = all.split_off(excess_segments(&all, limit));
    let stays = |s: &&LogSpan| !stay.iter().any(|k| k.id == s.id);
    let gone = kept.iter().chain(more).filter(stays).copied().collect();
    (stay, gone)
}

/// Takes away what does not count behind the end of a segment that stays.
pub fn trim_segment(dir: &dyn Dir, span: &LogSpan) -> Result<()> {
    let name = filename::file_name(span.id, FileKind::Wal);
    if dir.file_len(&name)?.is_some_and(|len| len > span.bytes) {
        dir.append_to(&name)?.truncate(span.bytes)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(id: u64, first: u64, end: u64, bytes: u64) -> LogSpan {
        LogSpan { id: FileId(id), first_lsn: first, end_lsn: end, bytes }
    }
    fn ids(spans: &[LogSpan]) -> Vec<u64> {
        spans.iter().map(|s| s.id.0).collect()
    }

    #[test]
    fn newest_segments_are_retained_within_limit() {
        let kept = [span(1, 1, 5, 40), span(2, 5, 9, 40)];
        let more = [span(3, 9, 12, 30)];
        let show = |limit| {
            let (stay, gone) = split_retained(&kept, &more, limit);
            (ids(&stay), ids(&gone))
        };
        assert_eq!(show(0), (vec![], vec![1, 2, 3]));
        assert_eq!(show(70), (vec![2, 3], vec![1]));
        assert_eq!(show(1000), (vec![1, 2, 3], vec![]));
        assert_eq!(
            show(29),
            (vec![], vec![1, 2, 3]),
            "one that is too large hides those before it"
        );
    }

    #[test]
    fn segments_before_gap_and_empty_ones_go() {
        let (stay, gone) =
            split_retained(&[span(1, 1, 5, 40)], &[span(2, 6, 9, 1), span(3, 9, 9, 1)], 1000);
        assert_eq!((ids(&stay), ids(&gone)), (vec![2], vec![1, 3]));
    }
}
