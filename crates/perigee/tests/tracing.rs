//! With the feature `tracing`, a subscriber receives spans and events.
#![cfg(feature = "tracing")]
#![allow(clippy::unwrap_used)]

use perigee::env::Env;
use perigee::env::fs::memory::SimDisk;
use perigee::{Db, FamilyOptions, Options};
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Records every span and event.
#[derive(Clone, Default)]
struct RecordingSubscriber(Arc<Mutex<String>>);

impl Visit for RecordingSubscriber {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.lock().unwrap().push_str(&format!("{}={value:?} ", field.name()));
    }
}

impl Subscriber for RecordingSubscriber {
    fn enabled(&self, m: &Metadata<'_>) -> bool {
        m.target() == "perigee"
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        span.record(&mut self.clone());
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn tracing_subscriber_receives_spans_and_events() {
    let listener = RecordingSubscriber::default();
    tracing::subscriber::set_global_default(listener.clone()).unwrap();
    let env = Env { fs: SimDisk::new(1), ..Env::real() };
    let db = Db::open("/db", Options::in_env(env)).unwrap();
    db.put("k", "v").unwrap();
    db.create_family("tides", FamilyOptions::new()).unwrap();
    db.compact().unwrap();
    db.close().unwrap();
    let recorded = listener.0.lock().unwrap().clone();
    for word in [
        "what=\"open\"",
        "what=\"recovery\"",
        "what=\"flush\" subject=\"default\"",
        "what=\"compaction\"",
        "event=\"family\"",
        "event=\"close\"",
    ] {
        assert!(recorded.contains(word), "no {word} in {recorded}");
    }
}
