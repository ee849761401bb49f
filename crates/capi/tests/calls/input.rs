//! Fuzz input as a sequence of choices. After the last byte every choice is 0, so that any input is
//! a complete program.

use std::ffi::CString;

pub struct Input<'a> {
    bytes: &'a [u8],
}

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub fn is_over(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        *first
    }

    pub fn below(&mut self, n: usize) -> usize {
        usize::from(self.byte()) % n.max(1)
    }

    /// Returns one of few keys, so that operations conflict; sometimes one with unusual bytes or of
    /// some length.
    pub fn key(&mut self) -> Vec<u8> {
        let n = self.byte();
        match n {
            0..=239 => format!("key{:02}", n % 24).into_bytes(),
            240..=247 => vec![0, n, 0xff],
            248..=253 => vec![b'l'; usize::from(n - 247) * 400],
            _ => vec![0xff; 3],
        }
    }

    pub fn value(&mut self) -> Vec<u8> {
        let n = self.byte();
        match n {
            0..=7 => Vec::new(),
            8..=235 => vec![n; usize::from(n)],
            _ => (0..usize::from(n) * 37).map(|i| ((i * i) >> 3) as u8).collect(),
        }
    }

    /// Returns a column-family name: mostly one of four, sometimes one that must be refused.
    pub fn name(&mut self) -> CString {
        let n = self.byte();
        let text = match n {
            0..=223 => format!("family{}", n % 4),
            224..=227 => String::new(),
            228..=231 => "../up".to_owned(),
            232..=235 => "a/b".to_owned(),
            236..=239 => "..".to_owned(),
            240..=247 => "n".repeat(usize::from(n)),
            248..=251 => "\u{7f}\u{1}ä".to_owned(),
            _ => "x".repeat(127),
        };
        CString::new(text).unwrap()
    }
}
