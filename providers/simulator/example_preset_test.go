package simulator_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/opledger/opledger/providers/simulator"
)

// A client that speaks to GitHub sends the same issue twice, because it took a
// lost answer for a failure. One wish, two objects: this is what to count.
func ExamplePreset() {
	settings, err := simulator.Preset("github-issues")
	if err != nil {
		log.Fatal(err)
	}
	sim, err := simulator.New(simulator.Config{Settings: settings})
	if err != nil {
		log.Fatal(err)
	}
	srv := httptest.NewServer(sim)
	defer srv.Close()
	defer sim.Close()
	admin, err := simulator.NewClient(simulator.ClientConfig{BaseURL: srv.URL})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	if _, err := admin.AddRule(ctx, simulator.Rule{Do: simulator.LoseResponse, Nth: 1, Method: "POST"}); err != nil {
		log.Fatal(err)
	}
	for range 2 {
		body := strings.NewReader(`{"title":"call Ann","body":"<!-- opl0123456789abcdef0123456789abcdef -->"}`)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL+"/repos/acme/site/issues", body)
		if err != nil {
			log.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+simulator.DefaultToken)
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			fmt.Println("the answer is lost")
			continue
		}
		fmt.Println("the answer is", resp.Status)
		_ = resp.Body.Close()
	}
	sends, err := admin.Sends(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("one wish, %d sends, %d objects\n", sends[0].Sends, sends[0].Objects)
	// Output:
	// the answer is lost
	// the answer is 201 Created
	// one wish, 2 sends, 2 objects
}
