//! Virtual time that stands still while something is on its way through a genuine socket.
//!
//! tokio's paused clock jumps to the next timer whenever no task can run, and knows nothing of bytes that the kernel holds: a reply that is on its way would
//! come after every time limit. Here the connection counts them, and a task stays ready for as long as there are any.
//! Owns the count and that task, for one connection at a time. It speaks no protocol.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

use crate::link::Task;
use crate::transport::{ByteStream, Connector};

/// What the kernel has and a task waits for.
#[derive(Debug, Default)]
struct Transit {
    /// Written and not read yet.
    bytes: AtomicU64,
    /// Connections that are being made, and writes that wait for room.
    waiting: AtomicU64,
    begun: Notify,
}

impl Transit {
    fn is_empty(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) == 0 && self.waiting.load(Ordering::Relaxed) == 0
    }

    fn begin(&self, count: &AtomicU64, amount: usize) {
        count.fetch_add(amount as u64, Ordering::Relaxed);
        self.begun.notify_one();
    }

    fn end(count: &AtomicU64, amount: usize) {
        let less = |counted: u64| Some(counted.saturating_sub(amount as u64));
        count
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
            .ok();
    }
}

/// Holds paused time while a connection has something on its way. Clones hold the same.
#[derive(Clone, Debug)]
pub(crate) struct HeldTime {
    transit: Arc<Transit>,
    _holder: Arc<Task>,
}

impl HeldTime {
    /// To be made within the runtime whose time it holds, which must have one thread, as every runtime with paused time has.
    pub(crate) fn new() -> Self {
        let transit = Arc::new(Transit::default());
        let watched = transit.clone();
        let holder = tokio::spawn(async move {
            loop {
                watched.begun.notified().await;
                while !watched.is_empty() {
                    // Never idle, so time does not move; each turn looks at the sockets.
                    tokio::task::yield_now().await;
                }
            }
        });
        Self {
            transit,
            _holder: Arc::new(Task(holder)),
        }
    }

    /// One end of the connection. Both ends must be held: what is written at one is on its way until it is read at the other.
    pub(crate) fn stream<S: ByteStream>(&self, inner: S) -> HeldStream<S> {
        HeldStream {
            inner,
            time: self.clone(),
            is_waiting: false,
        }
    }

    /// The way to the other end.
    pub(crate) fn connector(&self, inner: Arc<dyn Connector>) -> Arc<dyn Connector> {
        Arc::new(HeldConnector {
            inner,
            time: self.clone(),
        })
    }
}

/// Counts from here on that something waits, until it is dropped.
struct Waiting(Arc<Transit>);

impl Waiting {
    fn new(transit: &Arc<Transit>) -> Self {
        transit.begin(&transit.waiting, 1);
        Self(transit.clone())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        Transit::end(&self.0.waiting, 1);
    }
}

#[derive(Debug)]
struct HeldConnector {
    inner: Arc<dyn Connector>,
    time: HeldTime,
}

impl Connector for HeldConnector {
    fn connect(&self) -> BoxFuture<'_, io::Result<Box<dyn ByteStream>>> {
        Box::pin(async move {
            let waiting = Waiting::new(&self.time.transit);
            let stream = self.inner.connect().await?;
            drop(waiting);
            Ok(Box::new(self.time.stream(stream)) as Box<dyn ByteStream>)
        })
    }

    fn pings(&self) -> bool {
        self.inner.pings()
    }

    fn address(&self) -> String {
        self.inner.address()
    }

    fn file_mode(&self) -> Option<u32> {
        self.inner.file_mode()
    }
}

/// One end of a connection whose bytes are counted.
#[derive(Debug)]
pub(crate) struct HeldStream<S> {
    inner: S,
    time: HeldTime,
    /// Whether a write waits for room.
    is_waiting: bool,
}

impl<S> HeldStream<S> {
    fn wait(&mut self, waits: bool) {
        let transit = &self.time.transit;
        match (self.is_waiting, waits) {
            (false, true) => transit.begin(&transit.waiting, 1),
            (true, false) => Transit::end(&transit.waiting, 1),
            _ => {}
        }
        self.is_waiting = waits;
    }
}

impl<S> Drop for HeldStream<S> {
    fn drop(&mut self) {
        self.wait(false);
        // Nobody reads what was on its way.
        self.time.transit.bytes.store(0, Ordering::Relaxed);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for HeldStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = pin!(&mut self.inner).poll_read(context, buffer);
        Transit::end(&self.time.transit.bytes, buffer.filled().len() - before);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HeldStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = pin!(&mut self.inner).poll_write(context, bytes);
        self.wait(written.is_pending());
        if let Poll::Ready(Ok(written)) = written {
            let transit = &self.time.transit;
            transit.begin(&transit.bytes, written);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        pin!(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        pin!(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::UnixStream;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn paused_time_stands_still_while_bytes_are_on_their_way_and_passes_afterwards() {
        let begun = tokio::time::Instant::now();
        tokio::spawn(async {
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        let time = HeldTime::new();
        let (near, far) = UnixStream::pair().unwrap();
        let (mut near, mut far) = (time.stream(near), time.stream(far));
        let echo = tokio::spawn(async move {
            let mut text = vec![0; 1 << 20];
            for _ in 0..3 {
                far.read_exact(&mut text).await.unwrap();
                far.write_all(&text).await.unwrap();
            }
            far
        });
        // More than a socket holds: writes wait for room.
        let mut text = vec![7; 1 << 20];
        for _ in 0..3 {
            near.write_all(&text).await.unwrap();
            near.read_exact(&mut text).await.unwrap();
        }
        let _far = echo.await.unwrap();
        assert_eq!(begun.elapsed(), Duration::ZERO);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(begun.elapsed(), Duration::from_secs(60));
    }
}
