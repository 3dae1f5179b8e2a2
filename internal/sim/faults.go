package sim

import "time"

// Fault is a kind of trouble. The list is closed.
type Fault int

// The kinds of trouble. Those from breachKeyLost on are breaches: the provider
// or a person breaks a promise, and what then happens twice is not the ledger's.
const (
	appendLost Fault = iota
	appendLate
	ackLost
	logDown
	logSlow
	logFailover
	entryStale
	entryUnreadable
	projectorCrash
	projectorPowerLoss
	bucketLost
	claimsLost
	claimsDown
	hintLost
	hintLate
	hintOfNothing
	strayMessage
	crash
	crashAtCall
	longRestart
	pause
	machineSleep
	stop
	wallJump
	requestLost
	requestLate
	answerLost
	answerLate
	refusedConnection
	connectionLost
	errorAfterEffect
	errorBeforeEffect
	storedError
	answerWithoutID
	answerMismatch
	tooManyRequests
	busyAnswer
	refusal
	probeFails
	adapterPanics
	cannotRender
	requestChanges
	notMine
	accountSwitched
	lookFails
	lookIncomplete
	lookSlow
	lookAlike
	indexLags
	outage
	alarm
	clientRepeats
	clientConflicts
	clientTwice
	clientGivesUp
	approvalLate
	approvalShort
	approvalForeign
	decisionLate
	decisionRepeated
	decisionBlind
	evidenceGiven
	evidenceForeign
	erasure
	logDamage
	longHistory
	wrongPredecessor
	breachKeyLost
	breachApply
	breachLag
	breachUnique
	breachPerson
	faultCount
)

type faultInfo struct {
	name string
	// rate is how often it happens where it can, at full strength.
	rate float64
}

func faultList() [faultCount]faultInfo {
	return [faultCount]faultInfo{
		appendLost:         {"append_lost", 0.08},
		appendLate:         {"append_lands_late", 0.05},
		ackLost:            {"acknowledgement_lost", 0.1},
		logDown:            {"log_unavailable", 0.02},
		logSlow:            {"log_slow", 0.06},
		logFailover:        {"log_failover", 0.02},
		entryStale:         {"entry_stale", 0.2},
		entryUnreadable:    {"entry_unreadable", 0.03},
		projectorCrash:     {"projector_crash", 0.03},
		projectorPowerLoss: {"projection_power_loss", 0.02},
		bucketLost:         {"projection_lost", 0.01},
		claimsLost:         {"claims_lost", 0.03},
		claimsDown:         {"claims_unavailable", 0.04},
		hintLost:           {"hint_lost", 0.1},
		hintLate:           {"hint_late", 0.1},
		hintOfNothing:      {"hint_of_nothing", 0.02},
		strayMessage:       {"stray_message", 0.01},
		crash:              {"crash", 0.1},
		crashAtCall:        {"crash_at_a_call", 0.015},
		longRestart:        {"long_restart", 0.3},
		pause:              {"process_pause", 0.01},
		machineSleep:       {"machine_sleep", 0.006},
		stop:               {"orderly_stop", 0.08},
		wallJump:           {"wall_clock_jump", 0.1},
		requestLost:        {"request_lost", 0.12},
		requestLate:        {"request_lands_late", 0.12},
		answerLost:         {"answer_lost", 0.15},
		answerLate:         {"answer_late", 0.12},
		refusedConnection:  {"connection_refused", 0.08},
		connectionLost:     {"connection_lost", 0.08},
		errorAfterEffect:   {"error_after_effect", 0.1},
		errorBeforeEffect:  {"error_before_effect", 0.1},
		storedError:        {"stored_error", 0.04},
		answerWithoutID:    {"answer_without_id", 0.06},
		answerMismatch:     {"mismatch_answer", 0.03},
		tooManyRequests:    {"too_many_requests", 0.12},
		busyAnswer:         {"busy_answer", 0.06},
		refusal:            {"refusal", 0.08},
		probeFails:         {"probe_fails", 0.06},
		adapterPanics:      {"adapter_panics", 0.02},
		cannotRender:       {"cannot_render", 0.015},
		requestChanges:     {"request_changes", 0.02},
		notMine:            {"contract_missing", 0.04},
		accountSwitched:    {"account_switched", 0.06},
		lookFails:          {"look_fails", 0.25},
		lookIncomplete:     {"look_incomplete", 0.25},
		lookSlow:           {"look_slow", 0.1},
		lookAlike:          {"look_alike", 0.03},
		indexLags:          {"index_lags", 0.5},
		outage:             {"provider_outage", 0.05},
		alarm:              {"integrity_alarm", 0.03},
		clientRepeats:      {"client_repeats", 0.2},
		clientConflicts:    {"client_conflicts", 0.15},
		clientTwice:        {"two_clients_at_once", 0.2},
		clientGivesUp:      {"client_cancels", 0.05},
		approvalLate:       {"approval_late", 0.3},
		approvalShort:      {"approval_short", 0.3},
		approvalForeign:    {"approval_of_another", 0.3},
		decisionLate:       {"decision_late", 0.4},
		decisionRepeated:   {"decision_repeated", 0.3},
		decisionBlind:      {"decision_other_than_settling", 0.5},
		evidenceGiven:      {"evidence_handed_in", 0.1},
		evidenceForeign:    {"evidence_of_another_account", 0.1},
		erasure:            {"arguments_erased", 0.02},
		logDamage:          {"log_damage_cleared", 0.02},
		longHistory:        {"long_history", 0.5},
		wrongPredecessor:   {"predecessor_known_dead", 0.3},
		breachKeyLost:      {"breach_key_forgotten_early", 0.1},
		breachApply:        {"breach_applied_too_late", 0.1},
		breachLag:          {"breach_lag_too_long", 0.2},
		breachUnique:       {"breach_two_under_one_id", 0.5},
		breachPerson:       {"breach_person_errs", 0.3},
	}
}

// swarm is the selection of one schedule: which kinds happen, and how often.
type swarm struct{ rate [faultCount]float64 }

func (w *world) choose(list *[faultCount]faultInfo) {
	// Every choice is made, so that the seeds of a schedule stay independent.
	strength := []float64{0.3, 1, 1, 2}[w.rng.IntN(4)]
	density := []float64{0.08, 0.25, 0.45}[w.rng.IntN(3)]
	breaches := w.rng.IntN(4) == 0
	for f := range faultCount {
		on := w.rng.Float64() < density
		switch f { //nolint:exhaustive // the others have nothing special
		case longHistory: // costs as much as a thousand schedules
			on = true
		case breachUnique: // few actions allow it
			on = breaches
		case breachKeyLost, breachApply, breachLag, breachPerson:
			on = on && breaches
		}
		if on {
			w.swarm.rate[f] = min(list[f].rate*strength, 0.9)
			if f == longHistory {
				w.swarm.rate[f] = list[f].rate
			}
		}
	}
	if w.swarm.rate[machineSleep] > 0 {
		// A sleep that stops the monotonic clock while somebody sets the wall
		// clock back can't be noticed by either.
		w.swarm.rate[wallJump] = 0
	}
}

// hit reports whether a fault happens here and now. After the faults' end none
// does.
func (w *world) hit(f Fault) bool {
	r := w.swarm.rate[f]
	if r == 0 || w.now >= w.calmFrom || w.rng.Float64() >= r {
		return false
	}
	w.stats.Faults[f]++
	if w.talk {
		w.say("        ! %s", w.kinds[f].name)
	}
	return true
}

// between draws a time.
func (w *world) between(low, high time.Duration) time.Duration {
	return low + time.Duration(w.rng.Int64N(int64(high-low)+1))
}

// latency of one call over the network.
func (w *world) latency() time.Duration { return w.between(time.Millisecond, 30*time.Millisecond) }

// long draws a time that may exceed every time limit of the design.
func (w *world) long() time.Duration {
	switch w.rng.IntN(4) {
	case 0:
		return w.between(time.Second, 15*time.Second)
	case 1:
		return w.between(10*time.Second, time.Minute)
	case 2:
		return w.between(time.Minute, 6*time.Minute)
	}
	return w.between(6*time.Minute, 20*time.Minute)
}
