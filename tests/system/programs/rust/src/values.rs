//! A value as the tests write it: [type, content].

use std::error::Error;

use fe2o3_amqp::types::primitives::{Binary, OrderedMap, Symbol, Timestamp, Uuid, Value};
use serde_json::{json, Value as Json};

pub type Read<T> = Result<T, Box<dyn Error>>;

pub fn bytes_of(hex: &Json) -> Read<Vec<u8>> {
    let hex = hex.as_str().ok_or("not hexadecimal")?;
    (0..hex.len() / 2).map(|n| Ok(u8::from_str_radix(&hex[2 * n..2 * n + 2], 16)?)).collect()
}

pub fn hex_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn list_of(told: &Json) -> Read<Vec<Value>> {
    told.as_array().ok_or("not a list")?.iter().map(value_of).collect()
}

fn uuid_of(hex: &Json) -> Read<Uuid> {
    let bytes: [u8; 16] = bytes_of(hex)?.try_into().map_err(|_| "a uuid has 16 bytes")?;
    Ok(Uuid::from(bytes))
}

fn map_of(told: &Json) -> Read<OrderedMap<Value, Value>> {
    let pairs = told.as_array().ok_or("not pairs")?.iter();
    pairs.map(|pair| Ok((value_of(&pair[0])?, value_of(&pair[1])?))).collect()
}

pub fn value_of(told: &Json) -> Read<Value> {
    let content = &told[1];
    let text = content.as_str().unwrap_or_default();
    Ok(match told[0].as_str().ok_or("a value has a type")? {
        "null" => Value::Null,
        "boolean" => Value::Bool(content.as_bool().ok_or("not a boolean")?),
        "ubyte" => Value::Ubyte(text.parse()?),
        "ushort" => Value::Ushort(text.parse()?),
        "uint" => Value::Uint(text.parse()?),
        "ulong" => Value::Ulong(text.parse()?),
        "byte" => Value::Byte(text.parse()?),
        "short" => Value::Short(text.parse()?),
        "int" => Value::Int(text.parse()?),
        "long" => Value::Long(text.parse()?),
        "float" => Value::from(f32::from_bits(u32::from_str_radix(text, 16)?)),
        "double" => Value::from(f64::from_bits(u64::from_str_radix(text, 16)?)),
        "char" => {
            let code = content.as_u64().and_then(|code| char::from_u32(code as u32));
            Value::Char(code.ok_or("not a char")?)
        }
        "timestamp" => Value::Timestamp(Timestamp::from_milliseconds(text.parse()?)),
        "uuid" => Value::Uuid(uuid_of(content)?),
        "binary" => Value::Binary(Binary::from(bytes_of(content)?)),
        "string" => Value::String(text.to_string()),
        "symbol" => Value::Symbol(Symbol::from(text)),
        "list" => Value::List(list_of(content)?),
        "map" => Value::Map(map_of(content)?),
        unknown => return Err(format!("no type {unknown:?}").into()),
    })
}

pub fn told_list(items: &[Value]) -> Json {
    items.iter().map(told_of).collect()
}

pub fn told_of(value: &Value) -> Json {
    match value {
        Value::Null => json!(["null"]),
        Value::Bool(content) => json!(["boolean", content]),
        Value::Ubyte(number) => json!(["ubyte", number.to_string()]),
        Value::Ushort(number) => json!(["ushort", number.to_string()]),
        Value::Uint(number) => json!(["uint", number.to_string()]),
        Value::Ulong(number) => json!(["ulong", number.to_string()]),
        Value::Byte(number) => json!(["byte", number.to_string()]),
        Value::Short(number) => json!(["short", number.to_string()]),
        Value::Int(number) => json!(["int", number.to_string()]),
        Value::Long(number) => json!(["long", number.to_string()]),
        Value::Float(number) => json!(["float", format!("{:08x}", number.to_bits())]),
        Value::Double(number) => json!(["double", format!("{:016x}", number.to_bits())]),
        Value::Char(content) => json!(["char", *content as u32]),
        Value::Timestamp(at) => json!(["timestamp", at.milliseconds().to_string()]),
        Value::Uuid(uuid) => json!(["uuid", hex_of(uuid.as_inner())]),
        Value::Binary(bytes) => json!(["binary", hex_of(bytes)]),
        Value::String(content) => json!(["string", content]),
        Value::Symbol(content) => json!(["symbol", content.as_str()]),
        Value::List(items) => json!(["list", told_list(items)]),
        Value::Map(pairs) => {
            let pairs: Vec<Json> =
                pairs.iter().map(|(key, value)| json!([told_of(key), told_of(value)])).collect();
            json!(["map", pairs])
        }
        other => json!(["unknown", format!("{other:?}")]),
    }
}
