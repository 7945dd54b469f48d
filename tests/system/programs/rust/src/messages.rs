//! A message as the tests write it; see README.md in the folder above.

use fe2o3_amqp::types::messaging::annotations::OwnedKey;
use fe2o3_amqp::types::messaging::{
    AmqpSequence, AmqpValue, ApplicationProperties, Batch, Body, Data, Header, Message,
    MessageAnnotations, MessageId, Priority, Properties,
};
use fe2o3_amqp::types::primitives::{Binary, SimpleValue, Symbol, Timestamp, Value};
use serde_json::{json, Map, Value as Json};

use crate::values::{bytes_of, hex_of, list_of, told_list, told_of, value_of, Read};

const DEFAULT_PRIORITY: u64 = 4;

pub fn message_of(told: &Json) -> Read<Message<Body<Value>>> {
    let annotations = told["annotations"].as_object().map(annotations_of).transpose()?;
    let application = told["application"].as_object().map(application_of).transpose()?;
    let mut message =
        Message::builder().header(header_of(&told["header"])).body(body_of(&told["body"])?).build();
    message.properties = match &told["properties"] {
        Json::Null => None,
        properties => Some(properties_of(properties)?),
    };
    message.message_annotations = annotations;
    message.application_properties = application;
    Ok(message)
}

fn header_of(told: &Json) -> Header {
    Header {
        durable: told["durable"].as_bool().unwrap_or(false),
        priority: Priority(told["priority"].as_u64().unwrap_or(DEFAULT_PRIORITY) as u8),
        ttl: told["ttl"].as_u64().map(|ttl| ttl as u32),
        first_acquirer: false,
        delivery_count: told["delivery_count"].as_u64().unwrap_or(0) as u32,
    }
}

fn annotations_of(told: &Map<String, Json>) -> Read<MessageAnnotations> {
    let pairs = told
        .iter()
        .map(|(name, value)| Ok((OwnedKey::Symbol(Symbol::from(name.as_str())), value_of(value)?)));
    Ok(MessageAnnotations(pairs.collect::<Read<_>>()?))
}

fn application_of(told: &Map<String, Json>) -> Read<ApplicationProperties> {
    let pairs = told.iter().map(|(name, value)| {
        let simple = SimpleValue::try_from(value_of(value)?).map_err(|_| "not a simple value")?;
        Ok((name.clone(), simple))
    });
    Ok(ApplicationProperties(pairs.collect::<Read<_>>()?))
}

fn id_of(told: &Json) -> Read<Option<MessageId>> {
    if told.is_null() {
        return Ok(None);
    }
    Ok(Some(match value_of(told)? {
        Value::Ulong(id) => MessageId::Ulong(id),
        Value::Uuid(id) => MessageId::Uuid(id),
        Value::Binary(id) => MessageId::Binary(id),
        Value::String(id) => MessageId::String(id),
        other => return Err(format!("no id: {other:?}").into()),
    }))
}

fn properties_of(told: &Json) -> Read<Properties> {
    let text = |name: &str| told[name].as_str().map(str::to_string);
    let time = |name: &str| told[name].as_i64().map(Timestamp::from_milliseconds);
    let user_id = match &told["user_id"] {
        Json::Null => None,
        hex => Some(Binary::from(bytes_of(hex)?)),
    };
    Ok(Properties {
        message_id: id_of(&told["message_id"])?,
        user_id,
        to: text("to"),
        subject: text("subject"),
        reply_to: text("reply_to"),
        correlation_id: id_of(&told["correlation_id"])?,
        content_type: text("content_type").map(Symbol::from),
        content_encoding: text("content_encoding").map(Symbol::from),
        absolute_expiry_time: time("absolute_expiry_time"),
        creation_time: time("creation_time"),
        group_id: text("group_id"),
        group_sequence: told["group_sequence"].as_u64().map(|number| number as u32),
        reply_to_group_id: text("reply_to_group_id"),
    })
}

fn body_of(told: &Json) -> Read<Body<Value>> {
    if let Some(sections) = told["data"].as_array() {
        let data = sections.iter().map(|hex| Ok(Data(Binary::from(bytes_of(hex)?))));
        return Ok(Body::Data(Batch::new(data.collect::<Read<Vec<_>>>()?)));
    }
    if let Some(sections) = told["sequence"].as_array() {
        let lists = sections.iter().map(|items| Ok(AmqpSequence(list_of(items)?)));
        return Ok(Body::Sequence(Batch::new(lists.collect::<Read<Vec<_>>>()?)));
    }
    match &told["value"] {
        Json::Null => Ok(Body::Empty),
        value => Ok(Body::Value(AmqpValue(value_of(value)?))),
    }
}

pub fn told_message(message: &Message<Body<Value>>) -> Json {
    let header = message.header.clone().unwrap_or_default();
    let mut annotations = Map::new();
    if let Some(found) = &message.message_annotations {
        for (key, value) in found.iter() {
            annotations.insert(key_text(key), told_of(value));
        }
    }
    let mut application = Map::new();
    if let Some(found) = &message.application_properties {
        for (name, value) in found.iter() {
            application.insert(name.clone(), told_of(&Value::from(value.clone())));
        }
    }
    json!({
        "header": {
            "durable": header.durable,
            "priority": header.priority.0,
            "ttl": header.ttl.unwrap_or(0),
            "delivery_count": header.delivery_count,
        },
        "properties": message.properties.as_ref().map(told_properties).unwrap_or_default(),
        "annotations": annotations,
        "application": application,
        "body": told_body(&message.body),
    })
}

fn key_text(key: &OwnedKey) -> String {
    match key {
        OwnedKey::Symbol(name) => name.as_str().to_string(),
        OwnedKey::Ulong(number) => number.to_string(),
    }
}

fn told_id(id: &MessageId) -> Json {
    told_of(&match id.clone() {
        MessageId::Ulong(id) => Value::Ulong(id),
        MessageId::Uuid(id) => Value::Uuid(id),
        MessageId::Binary(id) => Value::Binary(id),
        MessageId::String(id) => Value::String(id),
    })
}

fn told_properties(told: &Properties) -> Map<String, Json> {
    let symbol = |symbol: &Option<Symbol>| symbol.as_ref().map(|text| json!(text.as_str()));
    let text = |text: &Option<String>| text.as_ref().map(|text| json!(text));
    let time = |at: &Option<Timestamp>| at.as_ref().map(|at| json!(at.milliseconds()));
    let fields = [
        ("message_id", told.message_id.as_ref().map(told_id)),
        ("user_id", told.user_id.as_ref().map(|bytes| json!(hex_of(bytes)))),
        ("to", text(&told.to)),
        ("subject", text(&told.subject)),
        ("reply_to", text(&told.reply_to)),
        ("correlation_id", told.correlation_id.as_ref().map(told_id)),
        ("content_type", symbol(&told.content_type)),
        ("content_encoding", symbol(&told.content_encoding)),
        ("absolute_expiry_time", time(&told.absolute_expiry_time)),
        ("creation_time", time(&told.creation_time)),
        ("group_id", text(&told.group_id)),
        ("group_sequence", told.group_sequence.map(|number| json!(number))),
        ("reply_to_group_id", text(&told.reply_to_group_id)),
    ];
    fields.into_iter().filter_map(|(name, value)| Some((name.to_string(), value?))).collect()
}

fn told_body(body: &Body<Value>) -> Json {
    match body {
        Body::Data(sections) => {
            let data: Vec<String> = sections.iter().map(|data| hex_of(&data.0)).collect();
            json!({ "data": data })
        }
        Body::Sequence(sections) => {
            let lists: Vec<Json> = sections.iter().map(|items| told_list(&items.0)).collect();
            json!({ "sequence": lists })
        }
        Body::Value(value) => json!({ "value": told_of(&value.0) }),
        Body::Empty => json!({}),
    }
}
