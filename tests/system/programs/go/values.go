package main

import (
	"encoding/hex"
	"fmt"
	"math"
	"sort"
	"strconv"
	"time"

	"github.com/Azure/go-amqp"
)

// told is a value as the tests write it: [type, content].
type told []any

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func signed(content any, bits int) int64 {
	return must(strconv.ParseInt(content.(string), 10, bits))
}

func unsigned(content any, bits int) uint64 {
	return must(strconv.ParseUint(content.(string), 10, bits))
}

func bytesOf(content any) []byte {
	return must(hex.DecodeString(content.(string)))
}

func uuidOf(content any) (uuid amqp.UUID) {
	copy(uuid[:], bytesOf(content))
	return uuid
}

var read = map[string]func(any) any{
	"null":    func(any) any { return nil },
	"boolean": func(c any) any { return c },
	"ubyte":   func(c any) any { return uint8(unsigned(c, 8)) },
	"ushort":  func(c any) any { return uint16(unsigned(c, 16)) },
	"uint":    func(c any) any { return uint32(unsigned(c, 32)) },
	"ulong":   func(c any) any { return unsigned(c, 64) },
	"byte":    func(c any) any { return int8(signed(c, 8)) },
	"short":   func(c any) any { return int16(signed(c, 16)) },
	"int":     func(c any) any { return int32(signed(c, 32)) },
	"long":    func(c any) any { return signed(c, 64) },
	"float": func(c any) any {
		return math.Float32frombits(uint32(must(strconv.ParseUint(c.(string), 16, 32))))
	},
	"double": func(c any) any {
		return math.Float64frombits(must(strconv.ParseUint(c.(string), 16, 64)))
	},
	"timestamp": func(c any) any { return time.UnixMilli(signed(c, 64)) },
	"uuid":      func(c any) any { return uuidOf(c) },
	"binary":    func(c any) any { return bytesOf(c) },
	"string":    func(c any) any { return c },
	"symbol":    func(c any) any { return amqp.Symbol(c.(string)) },
}

// valueOf is what go-amqp sends as the type that is told. There is no char in it.
func valueOf(told any) any {
	parts := told.([]any)
	switch name := parts[0].(string); name {
	case "null":
		return nil
	case "list":
		return listOf(parts[1])
	case "map":
		found := map[any]any{}
		for _, pair := range parts[1].([]any) {
			found[valueOf(pair.([]any)[0])] = valueOf(pair.([]any)[1])
		}
		return found
	default:
		return read[name](parts[1])
	}
}

func listOf(content any) []any {
	items := []any{}
	for _, item := range content.([]any) {
		items = append(items, valueOf(item))
	}
	return items
}

// toldOf is what go-amqp read; strings and symbols are one to it.
func toldOf(value any) told {
	switch v := value.(type) {
	case nil:
		return told{"null"}
	case bool:
		return told{"boolean", v}
	case uint8:
		return told{"ubyte", strconv.FormatUint(uint64(v), 10)}
	case uint16:
		return told{"ushort", strconv.FormatUint(uint64(v), 10)}
	case uint32:
		return told{"uint", strconv.FormatUint(uint64(v), 10)}
	case uint64:
		return told{"ulong", strconv.FormatUint(v, 10)}
	case int8:
		return told{"byte", strconv.FormatInt(int64(v), 10)}
	case int16:
		return told{"short", strconv.FormatInt(int64(v), 10)}
	case int32:
		return told{"int", strconv.FormatInt(int64(v), 10)}
	case int64:
		return told{"long", strconv.FormatInt(v, 10)}
	case float32:
		return told{"float", fmt.Sprintf("%08x", math.Float32bits(v))}
	case float64:
		return told{"double", fmt.Sprintf("%016x", math.Float64bits(v))}
	case time.Time:
		return told{"timestamp", strconv.FormatInt(v.UnixMilli(), 10)}
	case amqp.UUID:
		return told{"uuid", hex.EncodeToString(v[:])}
	case []byte:
		return told{"binary", hex.EncodeToString(v)}
	case string:
		return told{"text", v}
	default:
		return toldCompound(value)
	}
}

func toldCompound(value any) told {
	pairs := []any{}
	switch v := value.(type) {
	case []any:
		return told{"list", toldList(v)}
	case map[string]any:
		for _, key := range sortedKeys(v) {
			pairs = append(pairs, []any{toldOf(key), toldOf(v[key])})
		}
		return told{"map", pairs}
	case map[any]any:
		for key, item := range v {
			pairs = append(pairs, []any{toldOf(key), toldOf(item)})
		}
		return told{"map", pairs}
	default:
		panic(fmt.Sprintf("no word for a %T", value))
	}
}

func toldList(items []any) []told {
	found := []told{}
	for _, item := range items {
		found = append(found, toldOf(item))
	}
	return found
}

func sortedKeys(v map[string]any) []string {
	keys := make([]string, 0, len(v))
	for key := range v {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}
