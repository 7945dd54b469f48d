// go-amqp as a program: see README.md in the folder above for what it is told and says.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/Azure/go-amqp"
)

const timeout = 30 * time.Second

type command struct {
	Do       string   `json:"do"`
	Host     string   `json:"host"`
	Port     int      `json:"port"`
	Address  string   `json:"address"`
	Messages []wire   `json:"messages"`
	Count    uint32   `json:"count"`
	Outcomes []string `json:"outcomes"`

	CA          string `json:"ca"`
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
	User        string `json:"user"`
	Password    string `json:"password"`
	Mechanism   string `json:"mechanism"`
}

type answer map[string]any

// client is one connection with at most one receiver.
type client struct {
	conn     *amqp.Conn
	session  *amqp.Session
	receiver *amqp.Receiver
	held     []*amqp.Message
}

func (c *client) connect(ctx context.Context, told command) (_ answer, err error) {
	scheme, options, err := secured(told)
	if err != nil {
		return nil, err
	}
	c.conn, err = amqp.Dial(ctx, fmt.Sprintf("%s://%s:%d", scheme, told.Host, told.Port), options)
	if err == nil {
		c.session, err = c.conn.NewSession(ctx, nil)
	}
	return answer{}, err
}

func (c *client) disconnect() answer {
	if c.conn != nil {
		_ = c.conn.Close() // the broker may be gone
	}
	*c = client{}
	return answer{}
}

func (c *client) send(ctx context.Context, told command) (answer, error) {
	sender, err := c.session.NewSender(ctx, told.Address, nil)
	if err != nil {
		return nil, err
	}
	outcomes := []string{}
	for _, message := range told.Messages {
		var refused *amqp.Error
		switch err := sender.Send(ctx, messageOf(message), nil); {
		case err == nil:
			outcomes = append(outcomes, "accepted")
		case errors.As(err, &refused):
			outcomes = append(outcomes, "rejected "+string(refused.Condition))
		default:
			return nil, err
		}
	}
	return answer{"outcomes": outcomes}, sender.Close(ctx)
}

func (c *client) open(ctx context.Context, told command) (answer, error) {
	var err error
	c.held = nil
	c.receiver, err = c.session.NewReceiver(ctx, told.Address, &amqp.ReceiverOptions{Credit: -1})
	if err != nil {
		return nil, err
	}
	return answer{}, c.receiver.IssueCredit(told.Count)
}

func (c *client) receive(ctx context.Context, told command) (answer, error) {
	messages := []wire{}
	for range told.Count {
		message, err := c.receiver.Receive(ctx, nil)
		if err != nil {
			return nil, err
		}
		c.held = append(c.held, message)
		messages = append(messages, toldMessage(message))
	}
	return answer{"messages": messages}, nil
}

func (c *client) settle(ctx context.Context, told command) (answer, error) {
	for n, word := range told.Outcomes {
		if err := c.decide(ctx, word, c.held[n]); err != nil {
			return nil, err
		}
	}
	c.held = nil
	return answer{}, c.receiver.Close(ctx)
}

func (c *client) decide(ctx context.Context, word string, message *amqp.Message) error {
	switch word {
	case "accept":
		return c.receiver.AcceptMessage(ctx, message)
	case "reject":
		return c.receiver.RejectMessage(ctx, message, &amqp.Error{Condition: "app:bad"})
	case "release":
		return c.receiver.ReleaseMessage(ctx, message)
	default:
		return c.receiver.ModifyMessage(ctx, message, &amqp.ModifyMessageOptions{
			DeliveryFailed: true, UndeliverableHere: word == "undeliverable",
		})
	}
}

func (c *client) answer(line []byte) (found answer, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("%v", reason)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var told command
	if err = json.Unmarshal(line, &told); err != nil {
		return nil, err
	}
	switch told.Do {
	case "connect":
		return c.connect(ctx, told)
	case "disconnect":
		return c.disconnect(), nil
	case "send":
		return c.send(ctx, told)
	case "open":
		return c.open(ctx, told)
	case "receive":
		return c.receive(ctx, told)
	case "settle":
		return c.settle(ctx, told)
	default:
		return nil, fmt.Errorf("unknown command %q", told.Do)
	}
}

func main() {
	if len(os.Args) > 1 {
		failover(os.Args[1], os.Args[2:])
		return
	}
	lines := bufio.NewReader(os.Stdin)
	answers := json.NewEncoder(os.Stdout)
	var c client
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		found, err := c.answer(line)
		if err != nil {
			found = answer{"error": err.Error()}
		}
		if err := answers.Encode(found); err != nil {
			return
		}
	}
}
