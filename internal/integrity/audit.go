package integrity

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/opledger/opledger/events"
)

const (
	// maxBack is how many messages may lie between a checkpoint and the message
	// that it names; one that names an older message can't be compared.
	maxBack = 4096
	// MaxFindings bounds what an Audit keeps. It counts all.
	MaxFindings = 100
)

// Audit reads the log message by message, from the first one on. The zero value
// is not ready; see NewAudit.
type Audit struct {
	cfg AuditConfig
	// rolling covers the log as it is. claimed goes on from the last checkpoint
	// as if that were right, so that damage before it does not make every later
	// checkpoint differ.
	rolling, claimed events.Rolling
	// back holds the latest leaves.
	back []entry
	last Mark
	// body is that of the last message.
	body  []byte
	good  point
	found []Finding
	total int
	// explained: messages are missing since the last good point, so that the
	// digests after them must differ.
	explained bool
	// gaps counts the missing numbers, first is the first number.
	gaps, first uint64
	// checked counts the checkpoints that were compared.
	checked int
	// lastCheckpoint is the message that the latest checkpoint names.
	lastCheckpoint uint64
}

type entry struct {
	seq     uint64
	leaf    events.Leaf
	stamp   time.Time
	rolling events.Rolling
	claimed events.Rolling
}

// point is a place in the log with its time stamp.
type point struct {
	seq   uint64
	stamp time.Time
}

// AuditConfig says what the log is held against.
type AuditConfig struct {
	Subjects events.Subjects
	// Ledger and Created are those of the log that is read.
	Ledger  string
	Created time.Time
	// Base is what has been accepted: what lies before it is not a finding.
	Base Base
	// Mark is what was seen of the log, nil if nobody kept one, or if it is older
	// than the clearing that accepted the base.
	Mark *Mark
}

// NewAudit begins an audit.
func NewAudit(cfg AuditConfig) *Audit {
	a := &Audit{cfg: cfg, last: Mark{Ledger: cfg.Ledger, Created: cfg.Created, Rolling: events.Rolling{}.Digest()}}
	if b := cfg.Base; b.Ledger != "" && (b.Ledger != cfg.Ledger || !b.Created.Equal(cfg.Created)) {
		a.add(Finding{Kind: OtherLog, Detail: "this is not the log that was accepted when the alarm was cleared"})
	}
	if m := cfg.Mark; m != nil {
		switch {
		case m.Ledger != cfg.Ledger:
			a.add(Finding{Kind: OtherLog, Detail: fmt.Sprintf("the log belongs to ledger %s, the high-water mark to %s", cfg.Ledger, m.Ledger)})
		case !m.Created.Equal(cfg.Created):
			a.add(Finding{Kind: OtherLog, Detail: fmt.Sprintf("the log was created anew at %s", cfg.Created.UTC().Format(time.RFC3339))})
		}
	}
	return a
}

func (a *Audit) add(f Finding) {
	a.total++
	if len(a.found) < MaxFindings {
		a.found = append(a.found, f)
	}
}

// Add takes the next message: Subject, Seq, Stamp and Body.
func (a *Audit) Add(r events.Record) {
	if a.first == 0 {
		a.first = r.Seq
	}
	if next := a.last.Seq + 1; r.Seq > next {
		a.gaps += r.Seq - next
		if r.Seq-1 > a.cfg.Base.Seq {
			a.explained = true
			a.add(Finding{Kind: Gap, From: next, To: r.Seq - 1, Since: a.last.Stamp, Detail: fmt.Sprintf("%d messages are missing", r.Seq-next)})
		}
	}
	leaf := events.LeafOf(r.Seq, r.Subject, r.Body)
	same := a.claimed == a.rolling
	if a.rolling = a.rolling.Next(r.Seq, leaf); same {
		a.claimed = a.rolling
	} else {
		a.claimed = a.claimed.Next(r.Seq, leaf)
	}
	a.remember(entry{seq: r.Seq, leaf: leaf, stamp: r.Stamp, rolling: a.rolling, claimed: a.claimed})
	a.last.Seq, a.last.Stamp, a.body = r.Seq, r.Stamp, r.Body
	if b := a.cfg.Base; b.Seq == r.Seq && b.Rolling != a.rolling.Digest() {
		a.add(Finding{Kind: Changed, From: 1, To: r.Seq, Detail: "the log is not the one that was accepted when the alarm was cleared"})
	}
	if m := a.cfg.Mark; m != nil && m.Seq == r.Seq &&
		m.Rolling != a.rolling.Digest() && m.Rolling != a.claimed.Digest() && (!a.explained || m.Message != events.Digest(r.Body)) {
		f := Finding{Kind: Changed, From: a.good.seq + 1, To: r.Seq, Since: a.good.stamp, Detail: "the log up to the high-water mark is not what it was"}
		if m.Message != events.Digest(r.Body) {
			f.Detail = "another message stands at the high-water mark"
		}
		a.add(f)
	}
	if r.Subject == a.cfg.Subjects.System(events.SystemCheckpoint.Name()) {
		a.checkpoint(r)
	}
}

func (a *Audit) remember(e entry) {
	if len(a.back) == 2*maxBack {
		a.back = append(a.back[:0], a.back[maxBack:]...)
	}
	a.back = append(a.back, e)
}

// checkpoint compares a checkpoint with the log before it.
func (a *Audit) checkpoint(r events.Record) {
	c, err := readCheckpoint(r.Body)
	if err != nil {
		a.add(Finding{Kind: Unreadable, From: r.Seq, To: r.Seq, Detail: "a checkpoint that can't be read"})
		return
	}
	a.lastCheckpoint = max(a.lastCheckpoint, c.Seq)
	if c.Seq < a.cfg.Base.Seq {
		a.good = point{r.Seq, r.Stamp} // accepted as it is
		return
	}
	i := len(a.back) - 1
	for i >= 0 && a.back[i].seq > c.Seq {
		i--
	}
	if i < 0 {
		return // too far back to compare
	}
	a.checked++
	e := a.back[i]
	if e.seq == c.Seq && (e.rolling.Digest() == c.Digest || e.claimed.Digest() == c.Digest) {
		a.good = point{c.Seq, e.stamp}
		return
	}
	if !a.explained {
		a.add(Finding{
			Kind: CheckpointDiffers, From: a.good.seq + 1, To: c.Seq, Since: a.good.stamp,
			Detail: fmt.Sprintf("they are not what the checkpoint in message %d says", r.Seq),
		})
	}
	a.good, a.explained = point{c.Seq, e.stamp}, false
	a.reclaim(i, c)
}

// reclaim goes on from a checkpoint as if it were right.
func (a *Audit) reclaim(i int, c Checkpoint) {
	sum, err := hex.DecodeString(strings.TrimPrefix(c.Digest, "sha256:"))
	claimed := events.Rolling{Seq: c.Seq}
	if err != nil || copy(claimed.Sum[:], sum) != len(claimed.Sum) {
		return
	}
	for ; i < len(a.back); i++ {
		if a.back[i].seq > c.Seq {
			claimed = claimed.Next(a.back[i].seq, a.back[i].leaf)
			a.back[i].claimed = claimed
		}
	}
	a.claimed = claimed
}

// End tells that everything up to the message last has been added: what the mark
// says beyond it is lost.
func (a *Audit) End() {
	m := a.cfg.Mark
	if m == nil || m.Seq <= a.last.Seq {
		return
	}
	a.add(Finding{
		Kind: WentBack, From: a.last.Seq + 1, To: m.Seq, Since: a.last.Stamp,
		Detail: fmt.Sprintf("the log ends with message %d", a.last.Seq),
	})
}

// Findings returns what was found, the first MaxFindings, and how many there are.
func (a *Audit) Findings() ([]Finding, int) { return a.found, a.total }

// Mark returns what the log is up to the message that was added last.
func (a *Audit) Mark() Mark {
	m := a.last
	m.Rolling = a.rolling.Digest()
	if m.Seq > 0 {
		m.Message, m.EventID = events.Digest(a.body), idOf(a.body)
	}
	return m
}

// idOf returns the id of a stored event, "" where there is none to read.
func idOf(body []byte) string {
	var env struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(body, &env) != nil || len(env.ID) > events.MaxIDLength {
		return ""
	}
	return env.ID
}

// Base returns the log as it is, as a base to accept.
func (a *Audit) Base() Base {
	first := a.first
	if first == 0 {
		first = 1
	}
	return Base{Mark: a.Mark(), First: first, Deleted: a.gaps}
}

// Seq is the message that was added last.
func (a *Audit) Seq() uint64 { return a.last.Seq }

// Checked returns how many checkpoints were compared, and the message that the
// latest one names.
func (a *Audit) Checked() (n int, seq uint64) { return a.checked, a.lastCheckpoint }
