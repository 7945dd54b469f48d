//! Over a pair of brokers: see "failover" in README.md in the folder above.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::error::Error;
use std::time::Duration;

use fe2o3_amqp::connection::ConnectionHandle;
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::types::messaging::{Body, Header, Message, Properties};
use fe2o3_amqp::types::primitives::Value;
use fe2o3_amqp::{Connection, Receiver, Sender, Session};
use tokio::io::AsyncReadExt;
use tokio::time::{sleep, timeout};

/// So many messages may wait for the receiver.
const AHEAD: usize = 200;

/// Connect to whichever of the addresses serves, and wait until one does.
async fn connect(addresses: &[String]) -> ConnectionHandle<()> {
    for address in addresses.iter().cycle() {
        let builder = Connection::builder().container_id("fe2o3-amqp").idle_time_out(5000u32);
        let opening = builder.open(address.as_str());
        if let Ok(Ok(connection)) = timeout(Duration::from_secs(2), opening).await {
            return connection;
        }
        sleep(Duration::from_millis(100)).await;
    }
    unreachable!("at least one address")
}

#[derive(Default)]
struct Both {
    queue: String,
    addresses: Vec<String>,
    is_stopping: Cell<bool>,
    missing: RefCell<HashSet<u64>>,
    received: RefCell<HashSet<u64>>,
}

pub async fn failover(queue: String, addresses: Vec<String>) {
    let both = Both { queue, addresses, ..Both::default() };
    let mut number = 1;
    let working = async {
        while let Err(reason) = both.go_on(&mut number).await {
            eprintln!("{reason}");
            println!("lost");
        }
    };
    let stopping = async {
        let _ = tokio::io::stdin().read_to_end(&mut Vec::new()).await;
        both.is_stopping.set(true);
        std::future::pending::<()>().await;
    };
    tokio::select! { () = working => {}, () = stopping => {} }
}

impl Both {
    /// Send and take over one connection until all is done, or the connection is lost.
    async fn go_on(&self, number: &mut u64) -> Result<(), Box<dyn Error>> {
        let mut connection = connect(&self.addresses).await;
        let mut sends = Session::begin(&mut connection).await?;
        let mut takes = Session::begin(&mut connection).await?;
        tokio::select! {
            result = self.send(&mut sends, number) => result,
            result = self.take(&mut takes) => result,
            _ = connection.on_close() => Err("the connection is lost".into()),
        }
    }

    /// Send numbers; one without an answer is the next connection's first.
    async fn send(
        &self,
        session: &mut SessionHandle<()>,
        number: &mut u64,
    ) -> Result<(), Box<dyn Error>> {
        let mut sender = Sender::attach(session, "sender", self.queue.as_str()).await?;
        while !self.is_stopping.get() {
            let message = Message::builder()
                .header(Header { durable: true, ..Header::default() })
                .properties(
                    Properties::builder().message_id(format!("{}-{number}", self.queue)).build(),
                )
                .value(Value::String(number.to_string()))
                .build();
            sender.send(message).await?.accepted_or_else(|outcome| format!("{outcome:?}"))?;
            println!("accepted {number}");
            if !self.received.borrow().contains(number) {
                self.missing.borrow_mut().insert(*number);
            }
            *number += 1;
            while self.missing.borrow().len() > AHEAD && !self.is_stopping.get() {
                sleep(Duration::from_millis(1)).await;
            }
        }
        while !self.missing.borrow().is_empty() {
            sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    async fn take(&self, session: &mut SessionHandle<()>) -> Result<(), Box<dyn Error>> {
        let mut receiver = Receiver::attach(session, "receiver", self.queue.as_str()).await?;
        loop {
            let delivery = receiver.recv::<Body<Value>>().await?;
            let Body::Value(value) = delivery.body() else { return Err("no value".into()) };
            let Value::String(text) = &value.0 else { return Err("no text".into()) };
            let number = text.parse()?;
            println!("received {number}");
            self.received.borrow_mut().insert(number);
            self.missing.borrow_mut().remove(&number);
            receiver.accept(&delivery).await?;
        }
    }
}
