package simulator_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"strings"

	"github.com/opledger/opledger/providers/simulator"
)

// A provider commits a task, and its answer is lost. The client knows nothing;
// the truth table knows.
func Example() {
	if err := run(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// the client got an answer: false
	// the truth table has 1 object, id 731
	// the wire saw 1 request, its answer was "none"
}

func run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	srv, err := simulator.New(simulator.Config{})
	if err != nil {
		stop()
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		stop()
		return err
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ctx, l) }()
	defer func() {
		stop()
		if err := <-served; err != nil {
			log.Print(err)
		}
	}()

	url := "http://" + l.Addr().String()
	admin, err := simulator.NewClient(simulator.ClientConfig{BaseURL: url})
	if err != nil {
		return err
	}
	if _, err := admin.AddRule(ctx, simulator.Rule{Do: simulator.LoseResponse, Nth: 1}); err != nil {
		return err
	}

	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/tasks", strings.NewReader(`{"title":"call Ann"}`))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+simulator.DefaultToken)
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	fmt.Println("the client got an answer:", err == nil)

	objects, err := admin.Objects(ctx, simulator.ObjectFilter{})
	if err != nil {
		return err
	}
	log, err := admin.Requests(ctx, 0)
	if err != nil {
		return err
	}
	fmt.Printf("the truth table has %d object, id %s\n", len(objects), objects[0].ID)
	fmt.Printf("the wire saw %d request, its answer was %q\n", len(log.Items), log.Items[0].Answer)
	return nil
}
