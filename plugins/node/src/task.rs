//! Runs operations: at once, on libuv's thread pool, or on a thread of their own.

use crate::error;
use crate::value::Output;
use napi::bindgen_prelude::ToNapiValue;
use napi::{Env, JsValue, Task, sys};
use perigee::{Error, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Mode: run at once on the calling thread, and return the result.
pub const SYNC: u32 = 0;
/// Mode: run on libuv's thread pool, and return a promise.
pub const POOL: u32 = 1;
/// Mode: run on a new thread, and return a promise. For operations that may wait for a lock of
/// another transaction: in the pool they would keep the holder of the lock from running.
pub const THREAD: u32 = 2;

/// The result of a native function: a value or a promise.
pub enum Reply {
    /// The result of an operation that ran at once.
    Value(Output),
    /// A promise; valid until the native function returns.
    Promise(sys::napi_value),
}

impl ToNapiValue for Reply {
    unsafe fn to_napi_value(env: sys::napi_env, reply: Self) -> napi::Result<sys::napi_value> {
        match reply {
            // SAFETY: the caller passes a valid environment.
            Reply::Value(output) => unsafe { Output::to_napi_value(env, output) },
            Reply::Promise(promise) => Ok(promise),
        }
    }
}

/// Runs `work` as `mode` says.
pub fn run(
    env: Env,
    mode: u32,
    work: impl FnOnce() -> Result<Output> + Send + 'static,
) -> napi::Result<Reply> {
    match mode {
        SYNC => match catch_panic(work) {
            Ok(output) => Ok(Reply::Value(output)),
            Err(e) => Err(error::to_js(&env, &e)),
        },
        THREAD => run_on_thread(env, work),
        _ => {
            let promise = env.spawn(Job { work: Some(work) })?.promise_object();
            Ok(Reply::Promise(promise.raw()))
        }
    }
}

fn run_on_thread(
    env: Env,
    work: impl FnOnce() -> Result<Output> + Send + 'static,
) -> napi::Result<Reply> {
    let (deferred, promise) = env.create_deferred::<Output, _>()?;
    let promise = promise.raw();
    let body = move || {
        let result = catch_panic(work);
        deferred.resolve(move |env: Env| result.map_err(|e| error::to_js(&env, &e)));
    };
    std::thread::Builder::new().name("perigee-wait".into()).spawn(body).map_err(|e| {
        error::to_js(&env, &Error::io("start a thread for an operation that may wait", &e))
    })?;
    Ok(Reply::Promise(promise))
}

/// Runs `work`; a panic becomes an error, so that it does not end the process.
fn catch_panic(work: impl FnOnce() -> Result<Output>) -> Result<Output> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        Err(Error::internal(format!("a panic: {text}")))
    })
}

struct Job<F> {
    work: Option<F>,
}

impl<F: FnOnce() -> Result<Output> + Send + 'static> Task for Job<F> {
    type Output = Result<Output>;
    type JsValue = Output;

    fn compute(&mut self) -> napi::Result<Self::Output> {
        let work = self.work.take().expect("a task is computed once");
        Ok(catch_panic(work))
    }

    fn resolve(&mut self, env: Env, result: Self::Output) -> napi::Result<Output> {
        result.map_err(|e| error::to_js(&env, &e))
    }
}
