// The CloudEvents SDK for Go on NATS JetStream, as Knative's channel uses it: sends events that come as JSON lines, or
// prints the ones it receives.
//
//	cloudevents send URL SUBJECT binary|structured
//	cloudevents receive URL SUBJECT COUNT
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	cejs "github.com/cloudevents/sdk-go/protocol/nats_jetstream/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"
)

func main() {
	command, url, subject, last := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	conn, err := nats.Connect(url)
	must(err)
	defer conn.Close()
	js, err := conn.JetStream()
	must(err)
	if command == "send" {
		send(js, subject, last)
	} else {
		receive(js, subject, last)
	}
}

func send(js nats.JetStreamContext, subject, mode string) {
	ctx := binding.WithForceStructured(context.Background())
	if mode == "binary" {
		ctx = binding.WithForceBinary(context.Background())
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var e event.Event
		must(json.Unmarshal(lines.Bytes(), &e))
		body := new(bytes.Buffer)
		header, err := cejs.WriteMsg(ctx, binding.ToMessage(&e), body)
		must(err)
		_, err = js.PublishMsg(&nats.Msg{Subject: subject, Header: header, Data: body.Bytes()}, nats.MsgId(e.ID()))
		must(err)
	}
	must(lines.Err())
}

func receive(js nats.JetStreamContext, subject, count string) {
	wanted, err := strconv.Atoi(count)
	must(err)
	subscription, err := js.SubscribeSync(subject, nats.OrderedConsumer())
	must(err)
	for range wanted {
		msg, err := subscription.NextMsg(10 * time.Second)
		must(err)
		e, err := binding.ToEvent(context.Background(), cejs.NewMessage(msg))
		must(err)
		must(e.Validate())
		line, err := json.Marshal(e)
		must(err)
		fmt.Println(string(line))
	}
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
