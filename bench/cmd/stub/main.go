// Command stub is the provider of the comparison: the least that can have an
// effect. An effect can be looked up by its label.
//
//	POST /effect            makes an effect and answers with its id; with an
//	                        Idempotency-Key a repeat gets the answer of the first
//	GET  /effects?label=    the effects that were made under a label
//	GET  /table             the effects' ids of each operation
//	GET  /account           whose account it is
//
// The first effect of an operation whose id begins with "lost-" is made, and its
// connection closed without an answer.
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"time"

	"github.com/opledger/opledger/bench/internal/front"
	"github.com/opledger/opledger/bench/internal/stub"
)

func main() {
	delay := flag.Duration("delay", 0, "how long an answer takes")
	flag.Parse()
	log.Fatal(front.Listen(context.Background(), os.Stdout, stub.New(*delay, time.Now)))
}
