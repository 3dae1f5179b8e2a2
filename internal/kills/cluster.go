package kills

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// members is the number of servers; every stream has a copy on each.
	members = 3
	// longestDead bounds how long a process stays dead, defaultCut how long it is cut
	// off: longer than the servers take to see that they have lost their majority.
	longestDead, defaultCut = 3 * time.Second, 15 * time.Second
	// progress is how many intents must be acknowledged after a trouble before the
	// next one, progressTime for how long that is waited for.
	progress     = 50
	progressTime = 60 * time.Second
	// turnTime is how long a ledger may take to leave a server that it does not hear.
	turnTime = 30 * time.Second
	// electionTime is how long the servers may take to choose another leader,
	// staleTime how long a ledger is alone with the old one.
	electionTime, staleTime = 20 * time.Second, 8 * time.Second
)

// trouble is what happens to a cluster in one round.
type trouble string

// The troubles. Those with routes leave a server's clients connected to it.
const (
	killLeader  trouble = "kill_leader"
	killServer  trouble = "kill_server"
	killAll     trouble = "kill_all_servers"
	cutRoutes   trouble = "cut_routes_of_leader"
	cutServer   trouble = "cut_off_server"
	cutLedger   trouble = "cut_off_ledger"
	killLedger  trouble = "kill_ledger"
	killLedgers trouble = "kill_both_ledgers"
	silentLink  trouble = "silent_link_of_ledger"
	staleLeader trouble = "ledger_alone_with_stale_leader"
)

// troubles lists them in the order in which they are played.
func troubles() []trouble {
	return []trouble{killLeader, cutRoutes, killAll, cutServer, killLedger, cutLedger, killServer, silentLink, staleLeader, killLedgers}
}

// ClusterConfig says what to do to a cluster.
type ClusterConfig struct {
	Binaries Binaries
	// Dir gets the world's folder; it must exist.
	Dir    string
	Seed   uint64
	Rounds int
	// Rate is how many intents the load hands in per second.
	Rate int
	// LongestCut bounds how long something is cut off; zero means 15 s.
	LongestCut time.Duration
	// Keep keeps the folder although nothing was found.
	Keep bool
	// Log is told of each round.
	Log io.Writer
}

// Check says what is wrong with a configuration.
func (cfg ClusterConfig) Check() error {
	if cfg.Rounds < 1 || cfg.Rounds > MaxRounds || cfg.Rate < 1 || cfg.Rate > maxRate {
		return fmt.Errorf("kills: 1 to %d rounds and 1 to %d intents per second", MaxRounds, maxRate)
	}
	return nil
}

// ClusterReport is the outcome of a run on a cluster.
type ClusterReport struct {
	Seed    uint64          `json:"seed"`
	Rounds  int             `json:"rounds"`
	Seconds float64         `json:"seconds"`
	Kills   int             `json:"kills"`
	Of      map[trouble]int `json:"troubles"`
	// LongestWaitS is the longest time from the end of a trouble until the load
	// made progress again.
	LongestWaitS float64 `json:"longest_wait_s"`
	Unanswered   int64   `json:"unanswered_requests"`
	Ends         int     `json:"ended_by_themselves"`
	// IntakeCalls and ClaimCalls are the calls of the two histories, with the
	// registers that they were on, and those without an answer.
	IntakeCalls      int `json:"intake_calls"`
	IntakeRegisters  int `json:"intake_registers"`
	IntakeUnanswered int `json:"intake_unanswered"`
	ClaimCalls       int `json:"claim_calls"`
	ClaimRegisters   int `json:"claim_registers"`
	ClaimUnanswered  int `json:"claim_unanswered"`
	Verdict
}

// Right reports whether nothing was found.
func (r ClusterReport) Right() bool { return r.Found == 0 }

// cluster is a world with three servers and links that can be cut.
type cluster struct {
	*world
	// routes[i][j] is the link from server i to server j, clients[k][i] that from
	// client k to server i: the workers first, then the harness.
	routes  [][]*proxy
	clients [][]*proxy
}

// RunCluster plays one trouble after the other on a cluster under load. The error is
// a failure of the harness; what was found is in the report.
func RunCluster(ctx context.Context, cfg ClusterConfig) (ClusterReport, error) {
	r := ClusterReport{Seed: cfg.Seed, Of: make(map[trouble]int)}
	if err := cfg.Check(); err != nil {
		return r, err
	}
	began := time.Now()
	dir := filepath.Join(cfg.Dir, "cluster")
	w, err := newWorld(ctx, cfg.Binaries, dir, cfg.Seed)
	if err != nil {
		return r, err
	}
	defer w.close()
	c := &cluster{world: w}
	if err := c.build(); err != nil {
		return r, err
	}
	histories, err := newContest(c, cfg.Seed)
	if err != nil {
		return r, err
	}
	defer histories.close()
	if err := w.underLoad(ctx, cfg.Rate, cfg.Seed, func(ctx context.Context) error {
		return histories.during(ctx, func() error { return c.rounds(ctx, cfg, &r) })
	}); err != nil {
		return r, fmt.Errorf("%s: %w", dir, err)
	}
	found, err := w.audit(ctx)
	if r.Verdict.plus(found); err != nil {
		return r, fmt.Errorf("%s: %w", dir, err)
	}
	if err := histories.judge(ctx, &r); err != nil {
		return r, err
	}
	r.Unanswered = w.load.unanswered.Load()
	for _, p := range w.processes() {
		p.mu.Lock()
		r.Ends += len(p.ends)
		p.mu.Unlock()
	}
	w.tellEnds(cfg.Log)
	r.Seconds = time.Since(began).Seconds()
	if r.Found == 0 && !cfg.Keep {
		w.close()
		return r, os.RemoveAll(dir)
	}
	return r, nil
}

// build makes servers, links and workers.
func (c *cluster) build() error {
	c.replicas = members
	var own, routed [members]string
	for i := range members {
		var err error
		if own[i], err = freeAddress(); err != nil {
			return err
		}
		if routed[i], err = freeAddress(); err != nil {
			return err
		}
	}
	var err error
	if c.routes, err = c.links(members, routed[:]); err != nil {
		return err
	}
	if c.clients, err = c.links(3, own[:]); err != nil {
		return err
	}
	for i := range members {
		var to []string
		for j := range members {
			if i != j {
				to = append(to, fmt.Sprintf("%q", "nats-route://"+c.routes[i][j].address))
			}
		}
		// Nobody may find a way around the links: what a server says of its own
		// address leads nowhere.
		s, err := c.server(fmt.Sprintf("nats%d", i+1), own[i], fmt.Sprintf(
			"\nping_interval: 2s\nping_max: 2\ncluster {\n  name: opledger\n  listen: %q\n  no_advertise: true\n  cluster_advertise: \"127.0.0.1:1\"\n  routes: [%s]\n}\n",
			routed[i], strings.Join(to, ", ")))
		if err != nil {
			return err
		}
		c.servers = append(c.servers, s)
	}
	c.urls = c.urlsOf(2)
	return c.workers(c.urlsOf(0), c.urlsOf(1))
}

// links makes the links of n sources to all servers.
func (c *cluster) links(n int, to []string) ([][]*proxy, error) {
	out := make([][]*proxy, n)
	for i := range n {
		for _, address := range to {
			p, err := newProxy(c.running.ctx, c.running, address)
			if err != nil {
				return nil, err
			}
			out[i] = append(out[i], p)
		}
	}
	return out, nil
}

// urlsOf are the servers as a client sees them; each client begins with another.
func (c *cluster) urlsOf(client int) string {
	var urls []string
	for i := range members {
		urls = append(urls, "nats://"+c.clients[client][(client+i)%members].address)
	}
	return strings.Join(urls, ",")
}

// rounds plays the troubles.
func (c *cluster) rounds(ctx context.Context, cfg ClusterConfig, r *ClusterReport) error {
	for n := range cfg.Rounds {
		what := troubles()[n%len(troubles())]
		leader := c.leader(ctx)
		out := c.outage(what, cmp.Or(cfg.LongestCut, defaultCut))
		started := time.Now()
		c.play(ctx, what, cmp.Or(leader, c.servers[c.rnd.IntN(members)].name), out, r)
		out = time.Since(started)
		r.Rounds++
		r.Of[what]++
		began, before := time.Now(), c.acknowledged()
		if !until(ctx, progressTime, func() bool { return c.acknowledged() >= before+progress }) {
			return errors.Join(ctx.Err(), fmt.Errorf("kills: round %d (%s): no progress within %s; see %s", n, what, progressTime, c.dir))
		}
		if err := c.allUp(ctx, startTime); err != nil {
			return err
		}
		r.LongestWaitS = max(r.LongestWaitS, time.Since(began).Seconds())
		_, _ = fmt.Fprintf(cfg.Log, "round %d: %s for %s (leader %s), going on after %s\n", n, what, out.Round(time.Millisecond), leader, time.Since(began).Round(time.Millisecond))
	}
	return nil
}

func (c *cluster) acknowledged() int64 { return c.load.acknowledged.Load() }

// leader names the server that leads the journal, or "".
func (c *cluster) leader(ctx context.Context) string {
	nc, err := c.connect(ledgerUser, c.ledgerPw)
	if err != nil {
		return ""
	}
	defer nc.Close()
	name := ""
	until(ctx, 10*time.Second, func() bool {
		js, err := jetstream.New(nc)
		if err != nil {
			return false
		}
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		s, err := js.Stream(ctx, "OPLEDGER_EVENTS")
		if err != nil || s.CachedInfo().Cluster == nil {
			return false
		}
		name = s.CachedInfo().Cluster.Leader
		return name != ""
	})
	return name
}

// outage draws how long a trouble lasts.
func (c *cluster) outage(what trouble, longestCut time.Duration) time.Duration {
	longest := longestDead
	switch what {
	case cutRoutes, cutServer, cutLedger:
		longest = longestCut
	case killLeader, killServer, killAll, killLedger, killLedgers, silentLink, staleLeader:
	}
	return longest/8 + time.Duration(c.rnd.Int64N(int64(longest)*7/8))
}

// play lets one trouble happen, and ends it.
func (c *cluster) play(ctx context.Context, what trouble, leader string, out time.Duration, r *ClusterReport) {
	led := 0
	for i, s := range c.servers {
		if s.name == leader {
			led = i
		}
	}
	one, ledger := c.rnd.IntN(members), c.rnd.IntN(len(c.ledgers))
	how := cut
	if c.rnd.IntN(2) == 0 {
		how = silent
	}
	switch what {
	case killLeader:
		r.Kills += c.dead(ctx, out, c.servers[led])
	case killServer:
		r.Kills += c.dead(ctx, out, c.servers[one])
	case killAll:
		r.Kills += c.dead(ctx, out/4, c.servers...)
	case killLedger:
		r.Kills += c.dead(ctx, 0, c.ledgers[ledger])
	case killLedgers:
		r.Kills += c.dead(ctx, out/4, c.ledgers...)
	case cutRoutes:
		c.out(ctx, how, out, c.routesOf(led))
	case cutServer:
		c.out(ctx, how, out, append(c.routesOf(one), c.clientsOf(one)...))
	case silentLink:
		c.silence(ctx, ledger, r)
	case staleLeader:
		c.stale(ctx, led, ledger)
	case cutLedger:
		c.out(ctx, how, out, c.clients[ledger])
	}
}

// dead kills processes at once, and starts them again after a time.
func (c *cluster) dead(ctx context.Context, out time.Duration, all ...*process) int {
	var wg sync.WaitGroup
	for _, p := range all {
		wg.Go(func() { p.kill(true) })
	}
	wg.Wait()
	pause(ctx, out)
	for _, p := range all {
		p.release()
	}
	return len(all)
}

// out cuts links for a time.
func (c *cluster) out(ctx context.Context, how link, d time.Duration, links []*proxy) {
	for _, p := range links {
		p.set(how)
	}
	pause(ctx, d)
	for _, p := range links {
		p.set(open)
	}
}

// silence swallows what goes over the link of a ledger until the ledger has turned
// to another server.
func (c *cluster) silence(ctx context.Context, ledger int, r *ClusterReport) {
	var used, others []*proxy
	for _, p := range c.clients[ledger] {
		if p.used() {
			used = append(used, p)
		} else {
			others = append(others, p)
		}
	}
	for _, p := range used {
		p.set(silent)
	}
	if !until(ctx, turnTime, func() bool { return slices.ContainsFunc(others, (*proxy).used) }) && ctx.Err() == nil {
		r.problem("%s stayed with a server that it did not hear for %s", c.ledgers[ledger].name, turnTime)
	}
	for _, p := range used {
		p.set(open)
	}
}

// stale cuts the leader off from the other servers and, when these have another one,
// a ledger off from them: all that it can reach is a server that does not know yet
// that its log is of the past.
func (c *cluster) stale(ctx context.Context, led, ledger int) {
	var cuts []*proxy
	for client, links := range c.clients {
		if client != ledger {
			cuts = append(cuts, links[led])
		}
	}
	cuts = append(cuts, c.routesOf(led)...)
	for _, p := range cuts {
		p.set(cut)
	}
	old := c.servers[led].name
	until(ctx, electionTime, func() bool { name := c.leader(ctx); return name != "" && name != old })
	before := c.acknowledged()
	until(ctx, time.Second, func() bool { return c.acknowledged() >= before+progress/10 })
	for i, p := range c.clients[ledger] {
		if i != led {
			cuts = append(cuts, p)
			p.set(cut)
		}
	}
	pause(ctx, staleTime)
	for _, p := range cuts {
		p.set(open)
	}
}

// routesOf are the links of a server to and from the others.
func (c *cluster) routesOf(server int) []*proxy {
	var out []*proxy
	for i := range members {
		if i != server {
			out = append(out, c.routes[i][server], c.routes[server][i])
		}
	}
	return out
}

// clientsOf are the links of all clients to a server.
func (c *cluster) clientsOf(server int) []*proxy {
	var out []*proxy
	for _, links := range c.clients {
		out = append(out, links[server])
	}
	return out
}

// random is a source of its own for one client of a history.
func random(seed uint64, client int) *mathrand.Rand {
	return mathrand.New(mathrand.NewPCG(seed, uint64(client)+10_000)) //nolint:gosec // a seed must repeat
}
