package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/go-amqp"
)

// ahead is how many messages may wait for the receiver.
const ahead = 200

// dial connects to whichever of the addresses serves, and waits until one does.
func dial(ctx context.Context, addresses []string) (*amqp.Conn, error) {
	for turn := 0; ; turn++ {
		attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
		conn, err := amqp.Dial(attempt, addresses[turn%len(addresses)],
			&amqp.ConnOptions{IdleTimeout: 5 * time.Second})
		cancel()
		if err == nil || ctx.Err() != nil {
			return conn, err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// both sends and receives over a pair of brokers: see "failover" in README.md in the folder above.
type both struct {
	queue      string
	addresses  []string
	isStopping atomic.Bool
	lock       sync.Mutex
	missing    map[int]bool
	received   map[int]bool
}

func failover(queue string, addresses []string) {
	b := &both{queue: queue, addresses: addresses, missing: map[int]bool{}, received: map[int]bool{}}
	ctx, end := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		b.isStopping.Store(true)
	}()
	taking := make(chan struct{})
	go func() {
		defer close(taking)
		for ctx.Err() == nil {
			b.lost(b.take(ctx))
		}
	}()
	for number := 1; !b.isStopping.Load(); {
		b.lost(b.send(ctx, &number))
	}
	for !b.isDone() {
		time.Sleep(10 * time.Millisecond)
	}
	end()
	<-taking
}

func (b *both) lost(err error) {
	if err != nil && !b.isDone() {
		fmt.Fprintln(os.Stderr, err)
		fmt.Println("lost")
	}
}

func (b *both) waiting() int {
	b.lock.Lock()
	defer b.lock.Unlock()
	return len(b.missing)
}

func (b *both) isDone() bool {
	return b.isStopping.Load() && b.waiting() == 0
}

// send sends numbers over one connection; one without an answer is the next connection's first.
func (b *both) send(ctx context.Context, number *int) error {
	conn, err := dial(ctx, b.addresses)
	if err != nil {
		return err
	}
	defer conn.Close()
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		return err
	}
	sender, err := session.NewSender(ctx, b.queue, nil)
	if err != nil {
		return err
	}
	for ; !b.isStopping.Load(); *number++ {
		for b.waiting() > ahead && !b.isStopping.Load() {
			time.Sleep(time.Millisecond)
		}
		message := amqp.NewMessage([]byte(strconv.Itoa(*number)))
		message.Header = &amqp.MessageHeader{Durable: true}
		message.Properties = &amqp.MessageProperties{
			MessageID: fmt.Sprintf("%s-%d", b.queue, *number),
		}
		if err := sender.Send(ctx, message, nil); err != nil {
			return err
		}
		b.lock.Lock()
		if !b.received[*number] {
			b.missing[*number] = true
		}
		b.lock.Unlock()
		fmt.Println("accepted", *number)
	}
	return nil
}

// take accepts numbers over one connection; in this mode the broker confirms each acceptance.
func (b *both) take(ctx context.Context) error {
	conn, err := dial(ctx, b.addresses)
	if err != nil {
		return err
	}
	defer conn.Close()
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		return err
	}
	receiver, err := session.NewReceiver(ctx, b.queue, &amqp.ReceiverOptions{
		Credit: 20, SettlementMode: amqp.ReceiverSettleModeSecond.Ptr(),
	})
	if err != nil {
		return err
	}
	for {
		message, err := receiver.Receive(ctx, nil)
		if err != nil {
			return err
		}
		number, err := strconv.Atoi(string(message.GetData()))
		if err != nil {
			return err
		}
		fmt.Println("received", number)
		b.lock.Lock()
		b.received[number] = true
		delete(b.missing, number)
		b.lock.Unlock()
		if err := receiver.AcceptMessage(ctx, message); err != nil {
			return err
		}
		fmt.Println("settled", number)
	}
}
