package main

import (
	"encoding/hex"
	"time"

	"github.com/Azure/go-amqp"
)

// wire is a message as the tests write it; see README.md in the folder above.
type wire struct {
	Header struct {
		Durable       bool   `json:"durable"`
		Priority      *uint8 `json:"priority"`
		TTL           int64  `json:"ttl"`
		DeliveryCount uint32 `json:"delivery_count"`
	} `json:"header"`
	Annotations map[string]any `json:"annotations"`
	Properties  properties     `json:"properties"`
	Application map[string]any `json:"application"`
	Body        body           `json:"body"`
}

type properties struct {
	MessageID          any     `json:"message_id,omitempty"`
	UserID             *string `json:"user_id,omitempty"`
	To                 *string `json:"to,omitempty"`
	Subject            *string `json:"subject,omitempty"`
	ReplyTo            *string `json:"reply_to,omitempty"`
	CorrelationID      any     `json:"correlation_id,omitempty"`
	ContentType        *string `json:"content_type,omitempty"`
	ContentEncoding    *string `json:"content_encoding,omitempty"`
	AbsoluteExpiryTime *int64  `json:"absolute_expiry_time,omitempty"`
	CreationTime       *int64  `json:"creation_time,omitempty"`
	GroupID            *string `json:"group_id,omitempty"`
	GroupSequence      *uint32 `json:"group_sequence,omitempty"`
	ReplyToGroupID     *string `json:"reply_to_group_id,omitempty"`
}

type body struct {
	Data     []string `json:"data,omitempty"`
	Sequence []any    `json:"sequence,omitempty"`
	Value    any      `json:"value,omitempty"`
}

const defaultPriority = 4

func messageOf(w wire) *amqp.Message {
	header := &amqp.MessageHeader{Durable: w.Header.Durable, Priority: defaultPriority}
	if w.Header.Priority != nil {
		header.Priority = *w.Header.Priority
	}
	header.TTL = time.Duration(w.Header.TTL) * time.Millisecond
	found := &amqp.Message{Header: header, Properties: propertiesOf(w.Properties)}
	if w.Application != nil {
		found.ApplicationProperties = map[string]any{}
		for name, value := range w.Application {
			found.ApplicationProperties[name] = valueOf(value)
		}
	}
	if w.Annotations != nil {
		found.Annotations = amqp.Annotations{}
		for name, value := range w.Annotations {
			found.Annotations[name] = valueOf(value)
		}
	}
	writeBody(found, w.Body)
	return found
}

func writeBody(message *amqp.Message, b body) {
	for _, content := range b.Data {
		message.Data = append(message.Data, bytesOf(content))
	}
	for _, items := range b.Sequence {
		message.Sequence = append(message.Sequence, listOf(items))
	}
	if b.Value != nil {
		if message.Value = valueOf(b.Value); message.Value == nil {
			message.Value = amqp.Null{}
		}
	}
}

func propertiesOf(p properties) *amqp.MessageProperties {
	found := &amqp.MessageProperties{
		To: p.To, Subject: p.Subject, ReplyTo: p.ReplyTo, ContentType: p.ContentType,
		ContentEncoding: p.ContentEncoding, GroupID: p.GroupID, GroupSequence: p.GroupSequence,
		ReplyToGroupID: p.ReplyToGroupID, AbsoluteExpiryTime: timeOf(p.AbsoluteExpiryTime),
		CreationTime: timeOf(p.CreationTime),
	}
	if p.MessageID != nil {
		found.MessageID = valueOf(p.MessageID)
	}
	if p.CorrelationID != nil {
		found.CorrelationID = valueOf(p.CorrelationID)
	}
	if p.UserID != nil {
		found.UserID = bytesOf(*p.UserID)
	}
	return found
}

func timeOf(ms *int64) *time.Time {
	if ms == nil {
		return nil
	}
	at := time.UnixMilli(*ms)
	return &at
}

func msOf(at *time.Time) *int64 {
	if at == nil {
		return nil
	}
	ms := at.UnixMilli()
	return &ms
}

func toldMessage(m *amqp.Message) (w wire) {
	priority := uint8(defaultPriority)
	if m.Header != nil {
		priority = m.Header.Priority
		w.Header.Durable, w.Header.DeliveryCount = m.Header.Durable, m.Header.DeliveryCount
		w.Header.TTL = m.Header.TTL.Milliseconds()
	}
	w.Header.Priority = &priority
	w.Annotations, w.Application = map[string]any{}, map[string]any{}
	for name, value := range m.Annotations {
		w.Annotations[name.(string)] = toldOf(value)
	}
	for name, value := range m.ApplicationProperties {
		w.Application[name] = toldOf(value)
	}
	if m.Properties != nil {
		w.Properties = toldProperties(m.Properties)
	}
	for _, content := range m.Data {
		w.Body.Data = append(w.Body.Data, hex.EncodeToString(content))
	}
	for _, items := range m.Sequence {
		w.Body.Sequence = append(w.Body.Sequence, toldList(items))
	}
	if m.Data == nil && m.Sequence == nil {
		w.Body.Value = toldOf(m.Value)
	}
	return w
}

func toldProperties(p *amqp.MessageProperties) properties {
	found := properties{
		To: p.To, Subject: p.Subject, ReplyTo: p.ReplyTo, ContentType: p.ContentType,
		ContentEncoding: p.ContentEncoding, GroupID: p.GroupID, GroupSequence: p.GroupSequence,
		ReplyToGroupID: p.ReplyToGroupID, AbsoluteExpiryTime: msOf(p.AbsoluteExpiryTime),
		CreationTime: msOf(p.CreationTime),
	}
	if p.MessageID != nil {
		found.MessageID = toldOf(p.MessageID)
	}
	if p.CorrelationID != nil {
		found.CorrelationID = toldOf(p.CorrelationID)
	}
	if p.UserID != nil {
		user := hex.EncodeToString(p.UserID)
		found.UserID = &user
	}
	return found
}
