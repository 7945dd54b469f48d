//! Links whose unsettled deliveries outlive their connection: numbers are sent, or taken.

use std::collections::{HashMap, HashSet, VecDeque};
use std::error::Error;
use std::time::Duration;

use fe2o3_amqp::link::delivery::Delivery;
use fe2o3_amqp::link::receiver::{CreditMode, DetachedReceiver};
use fe2o3_amqp::link::sender::DetachedSender;
use fe2o3_amqp::link::SendError;
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::types::definitions::ReceiverSettleMode;
use fe2o3_amqp::types::messaging::{
    Body, Header, Message, Outcome, Source, Target, TerminusDurability, TerminusExpiryPolicy,
};
use fe2o3_amqp::types::primitives::Value;
use fe2o3_amqp::{Receiver, Sender};
use serde_json::{json, Value as Json};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::client::text;
use crate::Answer;

type Caught<T> = Result<T, Box<dyn Error>>;
type Sent = (u64, Result<Outcome, SendError>);

const IN_FLIGHT: usize = 50;
const CREDIT: u32 = 20;
const HELD: usize = 6;
const QUIET: Duration = Duration::from_millis(100);

/// What of a link stays the same over its connections.
#[derive(Clone)]
struct Terms {
    name: String,
    address: String,
    mode: ReceiverSettleMode,
}

pub enum Durable {
    Sends(Sends),
    Takes(Takes),
}

pub enum Suspended {
    Sends(DetachedSender, Sends),
    Takes(DetachedReceiver, Takes),
}

/// Sends the numbers from 0 on.
pub struct Sends {
    terms: Terms,
    sender: Option<Sender>,
    next: u64,
    waiting: JoinSet<Sent>,
    accepted: Vec<u64>,
    other: HashMap<u64, String>,
}

/// Takes numbers: a number counts as taken when it is decided to accept it.
pub struct Takes {
    terms: Terms,
    receiver: Option<Receiver>,
    held: VecDeque<Delivery<Body<Value>>>,
    tags: HashSet<Vec<u8>>,
    taken: Vec<u64>,
    twice: Vec<u64>,
}

impl Durable {
    pub async fn attach(session: &mut SessionHandle<()>, told: &Json) -> Caught<Durable> {
        let terms = Terms {
            name: text(&told["name"]).to_string(),
            address: text(&told["address"]).to_string(),
            mode: match told["second"].as_bool() {
                Some(true) => ReceiverSettleMode::Second,
                _ => ReceiverSettleMode::First,
            },
        };
        Ok(match text(&told["role"]) {
            "sender" => Durable::Sends(Sends::attach(session, terms).await?),
            "receiver" => Durable::Takes(Takes::attach(session, terms).await?),
            unknown => return Err(format!("no role {unknown:?}").into()),
        })
    }

    /// The durability that the broker answered with.
    pub fn granted(&self) -> u32 {
        let durability = match self {
            Durable::Sends(link) => {
                let target = link.sender.as_ref().and_then(|sender| sender.target().clone());
                target.map(|target| target.durable)
            }
            Durable::Takes(link) => {
                let source = link.receiver.as_ref().and_then(|link| link.source().clone());
                source.map(|source| source.durable)
            }
        };
        match durability {
            Some(TerminusDurability::UnsettledState) => 2,
            Some(TerminusDurability::Configuration) => 1,
            _ => 0,
        }
    }

    pub async fn run(&mut self, count: u64) -> Answer {
        match self {
            Durable::Sends(link) => link.run(count).await,
            Durable::Takes(link) => link.run(count).await,
        }
    }

    /// The connection is lost: keep what the library knows of the link.
    pub async fn suspend(self) -> Caught<Suspended> {
        Ok(match self {
            Durable::Sends(mut link) => {
                let sender = link.sender.take().ok_or("not attached")?;
                let detached = sender.detach().await.unwrap_or_else(|(detached, _)| detached);
                Suspended::Sends(detached, link)
            }
            Durable::Takes(mut link) => {
                let receiver = link.receiver.take().ok_or("not attached")?;
                link.held.clear(); // their numbers of this session mean nothing in the next one
                let detached = receiver.detach().await.unwrap_or_else(|(detached, _)| detached);
                Suspended::Takes(detached, link)
            }
        })
    }

    pub async fn close(self) -> Caught<()> {
        match self {
            Durable::Sends(link) => link.sender.ok_or("not attached")?.close().await?,
            Durable::Takes(link) => link.receiver.ok_or("not attached")?.close().await?,
        }
        Ok(())
    }
}

impl Suspended {
    /// Go on in another session.
    ///
    /// `resume_on_session` forgets what is unsettled, as the link then only changes its session;
    /// `resume` keeps it, but in the session that is gone. So the link is led to its new session
    /// by a `resume_on_session` that fails before it forgets, as another link has the name.
    pub async fn resume(self, session: &mut SessionHandle<()>) -> Caught<(Durable, Json)> {
        match self {
            Suspended::Sends(detached, mut link) => {
                let name_sake = Receiver::builder()
                    .name(&link.terms.name)
                    .source(link.terms.address.as_str())
                    .credit_mode(CreditMode::Manual)
                    .attach(session)
                    .await?;
                let led = match detached.resume_on_session(session).await {
                    Ok(_) => return Err("resumed without its unsettled map".into()),
                    Err(error) => error.detached_sender,
                };
                name_sake.close().await?;
                link.sender = Some(led.resume().await?);
                Ok((Durable::Sends(link), json!({})))
            }
            Suspended::Takes(detached, mut link) => {
                let name_sake = Sender::attach(session, &link.terms.name, link.address()).await?;
                let led = match detached.resume_on_session(session).await {
                    Ok(_) => return Err("resumed without its unsettled map".into()),
                    Err(error) => error.detached_recver,
                };
                name_sake.close().await?;
                let mut receiver = led.resume().await?.into_receiver();
                receiver.set_credit(CREDIT).await?;
                link.receiver = Some(receiver);
                Ok((Durable::Takes(link), json!({})))
            }
        }
    }
}

impl Sends {
    async fn attach(session: &mut SessionHandle<()>, terms: Terms) -> Caught<Sends> {
        let target = Target::builder()
            .address(terms.address.as_str())
            .durable(TerminusDurability::UnsettledState)
            .expiry_policy(TerminusExpiryPolicy::Never)
            .build();
        let sender = Sender::builder()
            .name(&terms.name)
            .target(target)
            .receiver_settle_mode(terms.mode.clone())
            .attach(session)
            .await?;
        Ok(Sends {
            terms,
            sender: Some(sender),
            next: 0,
            waiting: JoinSet::new(),
            accepted: Vec::new(),
            other: HashMap::new(),
        })
    }

    /// Until `count` numbers have an outcome, or the connection is lost.
    async fn run(&mut self, count: u64) -> Answer {
        let mut lost = false;
        while !lost && ((self.accepted.len() + self.other.len()) as u64) < count {
            let sender = self.sender.as_mut().ok_or("not attached")?;
            if self.next < count && self.waiting.len() < IN_FLIGHT {
                match sender.send_batchable(numbered(self.next)).await {
                    Ok(delivery) => {
                        let number = self.next;
                        self.waiting.spawn(async move { (number, delivery.await) });
                        self.next += 1;
                    }
                    Err(_) => lost = true,
                }
                while let Some(sent) = self.waiting.try_join_next() {
                    self.note(sent?);
                }
            } else {
                tokio::select! {
                    Some(sent) = self.waiting.join_next() => self.note(sent?),
                    _ = sender.on_detach() => lost = true,
                }
            }
        }
        Ok(json!({
            "lost": lost, "sent": self.next, "accepted": self.accepted, "other": self.other,
        }))
    }

    fn note(&mut self, (number, outcome): Sent) {
        match outcome {
            Ok(Outcome::Accepted(_)) => self.accepted.push(number),
            other => {
                self.other.insert(number, format!("{other:?}"));
            }
        }
    }
}

impl Takes {
    async fn attach(session: &mut SessionHandle<()>, terms: Terms) -> Caught<Takes> {
        let source = Source::builder()
            .address(terms.address.as_str())
            .durable(TerminusDurability::UnsettledState)
            .expiry_policy(TerminusExpiryPolicy::Never)
            .build();
        let mut receiver = Receiver::builder()
            .name(&terms.name)
            .source(source)
            .receiver_settle_mode(terms.mode.clone())
            .credit_mode(CreditMode::Manual)
            .attach(session)
            .await?;
        receiver.set_credit(CREDIT).await?;
        Ok(Takes {
            terms,
            receiver: Some(receiver),
            held: VecDeque::new(),
            tags: HashSet::new(),
            taken: Vec::new(),
            twice: Vec::new(),
        })
    }

    fn address(&self) -> &str {
        &self.terms.address
    }

    /// Until `count` numbers are taken, or the connection is lost.
    async fn run(&mut self, count: u64) -> Answer {
        let mut lost = false;
        while !lost && (self.taken.len() as u64) < count {
            let receiver = self.receiver.as_mut().ok_or("not attached")?;
            match timeout(QUIET, receiver.recv::<Body<Value>>()).await {
                Ok(Ok(delivery)) => self.held.push_back(delivery),
                Ok(Err(_)) => lost = true,
                Err(_) => lost = !self.take().await?,
            }
            while !lost && self.held.len() > HELD {
                lost = !self.take().await?;
            }
        }
        while !lost && !self.held.is_empty() {
            lost = !self.take().await?;
        }
        Ok(json!({"lost": lost, "taken": self.taken, "twice": self.twice}))
    }

    /// Accept the oldest that is held; false if the connection is lost.
    async fn take(&mut self) -> Caught<bool> {
        let Some(delivery) = self.held.pop_front() else {
            return Ok(true);
        };
        let number = number_of(delivery.body())?;
        if self.tags.insert(delivery.delivery_tag().to_vec()) {
            self.taken.push(number);
        } else {
            self.twice.push(number);
        }
        let receiver = self.receiver.as_mut().ok_or("not attached")?;
        if receiver.accept(&delivery).await.is_err() {
            return Ok(false);
        }
        if receiver.credit() < CREDIT / 2 {
            return Ok(receiver.set_credit(CREDIT).await.is_ok());
        }
        Ok(true)
    }
}

fn numbered(number: u64) -> Message<fe2o3_amqp::types::messaging::AmqpValue<u64>> {
    let header = Header::builder().durable(true).build();
    Message::builder().header(header).value(number).build()
}

fn number_of(body: &Body<Value>) -> Caught<u64> {
    match body.try_as_value() {
        Ok(Value::Ulong(number)) => Ok(*number),
        _ => Err(format!("no number: {body:?}").into()),
    }
}
