//! One connection with one session, a receiver and a durable link at most.

use std::time::Duration;

use fe2o3_amqp::connection::ConnectionHandle;
use fe2o3_amqp::link::delivery::Delivery;
use fe2o3_amqp::link::receiver::CreditMode;
use fe2o3_amqp::sasl_profile::{SaslProfile, SaslScramSha256, SaslScramSha512};
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::types::definitions::{Error as AmqpError, ErrorCondition};
use fe2o3_amqp::types::messaging::{Body, Modified, Outcome};
use fe2o3_amqp::types::primitives::{Symbol, Value};
use fe2o3_amqp::{Connection, Receiver, Sender, Session};
use serde_json::{json, Value as Json};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::durable::Durable;
use crate::messages::{message_of, told_message};
use crate::Answer;

pub const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Default)]
pub struct Client {
    connection: Option<ConnectionHandle<()>>,
    session: Option<SessionHandle<()>>,
    receiver: Option<Receiver>,
    held: Vec<Delivery<Body<Value>>>,
    durable: Option<Durable>,
    links: usize,
}

impl Client {
    pub async fn connect(&mut self, told: &Json) -> Answer {
        let port = told["port"].as_u64().ok_or("port: a number")? as u16;
        let stream = TcpStream::connect((text(&told["host"]), port)).await?;
        stream.set_nodelay(true)?; // else many a disposition waits 40 ms for an ACK
        let mut connection = Connection::builder()
            .container_id("fe2o3-amqp")
            .sasl_profile(profile_of(told)?)
            .open_with_stream(stream)
            .await?;
        self.session = Some(Session::begin(&mut connection).await?);
        self.connection = Some(connection);
        Ok(json!({}))
    }

    pub async fn disconnect(&mut self) -> Answer {
        self.held.clear();
        if let Some(mut connection) = self.connection.take() {
            let _ = timeout(PATIENCE, connection.close()).await; // the broker may be gone
        }
        self.receiver = None;
        self.session = None;
        Ok(json!({}))
    }

    pub async fn send(&mut self, told: &Json) -> Answer {
        let name = self.new_name();
        let mut sender = Sender::attach(self.session()?, name, text(&told["address"])).await?;
        let mut outcomes = Vec::new();
        for message in told["messages"].as_array().ok_or("messages: a list")? {
            let outcome = timeout(PATIENCE, sender.send(message_of(message)?)).await??;
            outcomes.push(match outcome {
                Outcome::Accepted(_) => "accepted".to_string(),
                Outcome::Rejected(rejected) => format!("rejected {}", condition(rejected.error)),
                other => return Err(format!("{other:?}").into()),
            });
        }
        sender.close().await?;
        Ok(json!({ "outcomes": outcomes }))
    }

    pub async fn open(&mut self, told: &Json) -> Answer {
        self.held.clear();
        let name = self.new_name();
        let mut receiver = Receiver::builder()
            .name(name)
            .source(text(&told["address"]))
            .credit_mode(CreditMode::Manual)
            .attach(self.session()?)
            .await?;
        receiver.set_credit(told["count"].as_u64().unwrap_or(1) as u32).await?;
        self.receiver = Some(receiver);
        Ok(json!({}))
    }

    pub async fn receive(&mut self, told: &Json) -> Answer {
        let receiver = self.receiver.as_mut().ok_or("no receiver is open")?;
        let mut found = Vec::new();
        for _ in 0..told["count"].as_u64().unwrap_or(1) {
            let delivery = timeout(PATIENCE, receiver.recv::<Body<Value>>()).await??;
            found.push(told_message(delivery.message()));
            self.held.push(delivery);
        }
        Ok(json!({ "messages": found }))
    }

    pub async fn settle(&mut self, told: &Json) -> Answer {
        let receiver = self.receiver.take().ok_or("no receiver is open")?;
        let words = told["outcomes"].as_array().ok_or("outcomes: a list")?;
        for (word, delivery) in words.iter().zip(self.held.drain(..)) {
            match text(word) {
                "accept" => receiver.accept(&delivery).await?,
                "reject" => receiver.reject(&delivery, bad()).await?,
                "release" => receiver.release(&delivery).await?,
                word => receiver.modify(&delivery, failed(word == "undeliverable")).await?,
            }
        }
        receiver.close().await?;
        Ok(json!({}))
    }

    /// Attach a link whose unsettled deliveries outlive connections.
    pub async fn attach(&mut self, told: &Json) -> Answer {
        let durable = Durable::attach(self.session()?, told).await?;
        let granted = durable.granted();
        self.durable = Some(durable);
        Ok(json!({ "durability": granted }))
    }

    /// Send or take, until all is done or the connection is lost.
    pub async fn run(&mut self, told: &Json) -> Answer {
        let count = told["count"].as_u64().ok_or("count: a number")?;
        self.durable.as_mut().ok_or("no durable link is attached")?.run(count).await
    }

    /// Connect again and go on with the durable link.
    pub async fn resume(&mut self, told: &Json) -> Answer {
        let durable = self.durable.take().ok_or("no durable link was attached")?;
        let suspended = durable.suspend().await?;
        self.connect(told).await?;
        let (durable, said) = suspended.resume(self.session()?).await?;
        self.durable = Some(durable);
        Ok(said)
    }

    /// End the durable link for good.
    pub async fn close(&mut self) -> Answer {
        self.durable.take().ok_or("no durable link is attached")?.close().await?;
        Ok(json!({}))
    }

    fn session(&mut self) -> Result<&mut SessionHandle<()>, &'static str> {
        self.session.as_mut().ok_or("connect first")
    }

    fn new_name(&mut self) -> String {
        self.links += 1;
        format!("link-{}", self.links)
    }
}

/// How it says who it is.
fn profile_of(told: &Json) -> Result<SaslProfile, &'static str> {
    let (user, password) = (text(&told["user"]), text(&told["password"]));
    match text(&told["mechanism"]) {
        "" | "ANONYMOUS" => Ok(SaslProfile::Anonymous),
        "PLAIN" => Ok((user, password).into()),
        "SCRAM-SHA-256" => Ok(SaslScramSha256::new(user, password).into()),
        "SCRAM-SHA-512" => Ok(SaslScramSha512::new(user, password).into()),
        _ => Err("mechanism: none that this client knows"),
    }
}

pub fn text(told: &Json) -> &str {
    told.as_str().unwrap_or_default()
}

fn condition(error: Option<AmqpError>) -> String {
    match error.map(|error| error.condition) {
        Some(ErrorCondition::AmqpError(known)) => Symbol::from(&known).0,
        Some(ErrorCondition::LinkError(known)) => Symbol::from(&known).0,
        Some(ErrorCondition::Custom(symbol)) => symbol.0,
        other => format!("{other:?}"),
    }
}

fn bad() -> AmqpError {
    AmqpError::new(ErrorCondition::Custom(Symbol::from("app:bad")), None, None)
}

fn failed(undeliverable: bool) -> Modified {
    Modified {
        delivery_failed: Some(true),
        undeliverable_here: Some(undeliverable),
        message_annotations: None,
    }
}
