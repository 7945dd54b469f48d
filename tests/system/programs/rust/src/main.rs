//! fe2o3-amqp as a program: see README.md in the folder above for what it is told and says.

mod client;
mod durable;
mod failover;
mod messages;
mod values;

use std::error::Error;

use serde::Deserialize;
use serde_json::{json, Value as Json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

type Answer = Result<Json, Box<dyn Error>>;

async fn answer(client: &mut client::Client, line: &str) -> Answer {
    let mut json = serde_json::Deserializer::from_str(line);
    json.disable_recursion_limit(); // 128 otherwise: a map of AMQP in JSON is three lists deep
    let told = Json::deserialize(&mut json)?;
    match told["do"].as_str().unwrap_or_default() {
        "connect" => client.connect(&told).await,
        "disconnect" => client.disconnect().await,
        "send" => client.send(&told).await,
        "open" => client.open(&told).await,
        "receive" => client.receive(&told).await,
        "settle" => client.settle(&told).await,
        "attach" => client.attach(&told).await,
        "run" => client.run(&told).await,
        "resume" => client.resume(&told).await,
        "close" => client.close().await,
        unknown => Err(format!("unknown command {unknown:?}").into()),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    if let Some(queue) = arguments.next() {
        failover::failover(queue, arguments.collect()).await;
        std::process::exit(0); // a read of the standard input may still wait
    }
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut out = tokio::io::stdout();
    let mut client = client::Client::default();
    while let Some(line) = lines.next_line().await? {
        let said = match answer(&mut client, &line).await {
            Ok(said) => said,
            Err(error) => json!({"error": error.to_string()}),
        };
        out.write_all(format!("{said}\n").as_bytes()).await?;
        out.flush().await?;
    }
    Ok(())
}
