package providers

import (
	"slices"
	"strconv"
	"strings"

	"github.com/opledger/opledger/operation"
)

// lint refuses what can't be safe (P4). It sees each action after compilation.
func (c *compiler) lint(f *File, a *action, s actionSpec, path string) {
	switch a.contract.Class {
	case operation.ClassKey, operation.ClassClientID:
		c.lintKeyed(a, path)
	case operation.ClassUpsert:
		c.lintUpsert(a, s, path)
	case operation.ClassLabel, operation.ClassNone:
		c.lintUnkeyed(a, s, path)
	}
	c.lintTiming(a, s, path)
	c.lintRepeats(f, a, s, path)
	c.lintUniqueness(a, path)
	c.lintVerify(a, path)
	c.lintSide(a, path+".side_objects")
	c.lintOutcomes(a, path+".outcomes")
	for i, l := range a.lookups {
		c.lintLookup(a, l, path+".lookups["+strconv.Itoa(i)+"]")
	}
	if a.contract.Lookup.Available && len(a.contract.Lookup.Schedule) == 0 {
		c.refuse(path+".lookups[0].schedule", "is missing: the first lookup says when to look")
	}
	c.lintAbsence(f, a, path+".absence")
	c.lintScope(a, path+".scope")
	c.lintArguments(a, path+".args.schema")
}

// lintKeyed: a keyed class has a key, made of the operation alone, in its place.
func (c *compiler) lintKeyed(a *action, path string) {
	if a.key == nil {
		c.refuse(path+".key", "class %s needs a key", a.contract.Class)
		return
	}
	if !a.key.value.own() {
		c.refuse(path+".key.value", "must hold ${op.key}, ${op.uuid}, ${op.uuid_plain}, ${op.uuid_v4} or ${op.label}")
	}
	for _, r := range a.key.value.refs() {
		if !r.own() {
			c.refuse(path+".key.value", "%s is not unique to the operation", r)
		}
	}
	if n := ownLength(a.key.value); a.key.maxLen > 0 && n > a.key.maxLen {
		c.refuse(path+".key.max_len", "the key has %d bytes, the provider takes %d", n, a.key.maxLen)
	}
	if !slices.Contains(a.key.methods, a.request.method) {
		c.refuse(path+".key.methods", "the provider honours the key for %s, and the request is a %s: add it only if the provider says so",
			strings.Join(a.key.methods, ", "), a.request.method)
	}
	switch a.key.in {
	case keyInBody:
		if !a.request.bodyHas(a.key.name, a.key.value) {
			c.refuse(path+".key.name", "the request's body does not have the key's value there")
		}
	case keyInPath:
		if !contains(a.request.path, a.key.value) {
			c.refuse(path+".key.value", "the request's path does not hold the key's value")
		}
	}
}

// ownLength is the length of a text made of the operation's marks.
func ownLength(t template) int {
	n := 0
	for _, p := range t {
		n += len(p.text)
		if p.ref == nil {
			continue
		}
		switch p.ref.name {
		case opKey, opUUID, opUUIDv4:
			n += 36
		case opUUIDPlain:
			n += 32
		case opLabel:
			n += 35
		}
	}
	return n
}

// bodyHas reports whether the body has exactly this template at a pointer (json)
// or in a member (form).
func (r requestTemplate) bodyHas(name string, want template) bool {
	t, ok := r.form[name]
	if r.encoding == encodingJSON || r.encoding == encodingGraphQL {
		at, err := parsePointer(name)
		if err != nil {
			return false
		}
		t, ok = r.body, true
		for _, part := range at {
			if t, ok = t.members[part]; !ok {
				return false
			}
		}
	}
	return ok && t.kind == treeLeaf && equalTemplates(t.leaf, want)
}

func equalTemplates(a, b template) bool {
	return slices.EqualFunc(a, b, func(x, y part) bool {
		return x.text == y.text && (x.ref == nil) == (y.ref == nil) && (x.ref == nil || *x.ref == *y.ref)
	})
}

// contains reports whether the references of want stand in t.
func contains(t, want template) bool {
	return !slices.ContainsFunc(want.refs(), func(r ref) bool { return !slices.Contains(t.refs(), r) })
}

// lintUnkeyed: K4 writes a label and looks it up; K5 has neither.
func (c *compiler) lintUnkeyed(a *action, s actionSpec, path string) {
	if a.key != nil {
		c.refuse(path+".key", "class %s has no key that the provider honours", a.contract.Class)
	}
	if w := s.Retry.Retention.word; w != "" && w != wordNone {
		c.refuse(path+".retry.retention", "class %s has no key to remember: it must be none", a.contract.Class)
	}
	switch {
	case a.contract.Class == operation.ClassLabel && len(a.lookups) == 0:
		c.refuse(path+".lookups", "class K4 needs a lookup by its label")
	case a.contract.Class == operation.ClassNone && len(a.lookups) > 0:
		c.refuse(path+".lookups", "class K5 has nothing to look up by; with a label it is K4")
	}
}

// lintUpsert: a repeat of an upsert is harmless as long as nothing newer was
// written to the same object, and only the scope of its external key keeps that
// true. The external key is an argument and not the operation's own mark: that
// an object has it never confirms an operation.
func (c *compiler) lintUpsert(a *action, s actionSpec, path string) {
	if a.key != nil {
		c.refuse(path+".key", "class K3 has no key: its external key is an argument, and the request writes it")
	}
	if w := s.Retry.Retention.word; w != "" && s.Retry.Retention.known() && w != wordForever {
		c.refuse(path+".retry.retention", "an external key is kept as long as its object: forever, none or unknown")
	}
	external := argsOf(a.scope.refs())
	if len(external) == 0 {
		c.refuse(path+".scope", `class K3 needs a scope of its external key, such as "${args.external_key}": `+
			"a repeat would overwrite what another operation has written since")
		return
	}
	if !slices.ContainsFunc(argsOf(a.request.refs()), func(r ref) bool { return slices.Contains(external, r) }) {
		c.refuse(path+".scope", "the request does not use the argument of the scope: the scope must be the key of the upsert")
	}
	byKey := false
	for i, l := range a.lookups {
		at := path + ".lookups[" + strconv.Itoa(i) + "]"
		byKey = byKey || slices.ContainsFunc(argsOf(l.refs()), func(r ref) bool { return slices.Contains(external, r) })
		if slices.ContainsFunc(l.match, func(m condition) bool { return m.soft }) {
			c.refuse(at+".match", "class K3 has no soft rules: the object that looks alike is the one that is written to")
		}
		if l.confirms != a.lookups[0].confirms {
			c.refuse(at+".match", "either all lookups of an upsert hold the operation's own mark or none does")
		}
	}
	if !byKey {
		c.refuse(path+".lookups", "class K3 needs a lookup by the argument of its scope, so that several objects with one key can be seen")
	}
	if a.contract.Absence.Provable {
		c.refuse(path+".absence.provable", "class K3 proves no absence: repeat the upsert instead")
	}
}

// argsOf returns the references to arguments, without the mark of the optional.
func argsOf(refs []ref) []ref {
	var out []ref
	for _, r := range refs {
		if r.space == spaceArgs {
			out = append(out, ref{space: r.space, name: r.name})
		}
	}
	return out
}

// lintVerify: what is looked for once more needs a lookup.
func (c *compiler) lintVerify(a *action, path string) {
	switch v := a.contract.VerifyShare; {
	case v < 0 || v > 1:
		c.refuse(path+".verify", "is a share from 0 to 1")
	case v > 0 && !a.contract.Lookup.Available:
		c.refuse(path+".verify", "needs a lookup that finds the operation's object")
	}
}

// lintUniqueness: how well an id is guarded is said where there is one.
func (c *compiler) lintUniqueness(a *action, path string) {
	if !a.contract.UniqueWeak {
		return
	}
	if a.contract.Class != operation.ClassClientID && a.contract.Class != operation.ClassUpsert {
		c.refuse(path+".uniqueness", "belongs to the classes K2 and K3, where the client chooses an id")
	}
	if a.contract.ConcurrentSafe {
		c.refuse(path+".timing.concurrent_safe", "is false where uniqueness is weak: two requests at once may both create")
	}
}

// lintSide: an object that the provider made by itself has no mark of ours, so
// that only a look by other marks shows it.
func (c *compiler) lintSide(a *action, path string) {
	alike := slices.ContainsFunc(a.lookups, func(l lookup) bool {
		return slices.ContainsFunc(l.match, func(m condition) bool { return m.soft })
	})
	if a.contract.SideObjects && (!alike || !a.contract.Lookup.Available) {
		c.refuse(path, "needs a lookup with a soft rule: nothing else shows an object without our mark")
	}
}

// ignored returns the names of the arguments that no conflict is about. What
// says where a request goes, or what it is kept apart by, always counts.
func (c *compiler) ignored(path string, a *action, texts []string) []string {
	var out []string
	for i, p := range c.pointers(path, texts) {
		at := path + "[" + strconv.Itoa(i) + "]"
		if len(p) != 1 || p[0] == "" {
			c.refuse(at, "must name one argument, such as /description")
			continue
		}
		if fault := argumentFault(a.schemaDoc, ref{space: spaceArgs, name: p[0], optional: true}); fault != "" {
			c.refuse(at, "%s %s", p[0], fault)
		}
		used := slices.Concat(a.request.path.refs(), a.scope.refs())
		for _, t := range a.request.query {
			used = append(used, t.refs()...)
		}
		for _, r := range used {
			if name, _, _ := strings.Cut(r.name, "."); r.space == spaceArgs && name == p[0] {
				c.refuse(at, "%s says which object is meant, and can't be ignored", r)
			}
		}
		out = append(out, p[0])
	}
	return out
}

// lintScope: a scope is known when the intent is recorded, before any account
// is at hand.
func (c *compiler) lintScope(a *action, path string) {
	for _, r := range a.scope.refs() {
		if r.space == spaceAccount && r.name != "name" && r.name != "provider_id" {
			c.refuse(path, "%s is not known when the intent is recorded: there are ${account.name} and ${account.provider_id}", r)
		}
	}
}

func (c *compiler) lintTiming(a *action, s actionSpec, path string) {
	if a.contract.Total <= 0 {
		c.refuse(path+".timing.total", "must be above zero")
	}
	if !s.Timing.LateApply.set {
		c.refuse(path+".timing.late_apply", "is missing: say how long after a timeout a request may still land")
	}
	if s.Approval.Required && a.contract.ApprovalDeadline <= 0 {
		c.refuse(path+".approval.deadline", "a required approval needs a deadline")
	}
	r := s.Retry.Retention
	if !a.contract.KeySupported || !r.known() || r.word == wordForever {
		return
	}
	if a.contract.Margin <= 0 {
		c.refuse(path+".retry.margin", "a retention that ends needs a margin")
	}
	if a.contract.Total+a.contract.Margin >= r.d {
		c.refuse(path+".retry.margin", "total %s and margin %s leave nothing of the retention %s",
			a.contract.Total, a.contract.Margin, r.d)
	}
}

// lintRepeats: more than one attempt needs a ground.
func (c *compiler) lintRepeats(f *File, a *action, s actionSpec, path string) {
	if a.contract.MaxAttempts < 2 {
		return
	}
	path += ".retry.max_attempts"
	switch {
	case f.Proof == operation.ProofAssumed:
		c.refuse(path, "an assumed promise never repeats: it must be 1")
	case a.contract.KeySupported && !s.Retry.Retention.known() && !a.contract.Absence.Provable:
		c.refuse(path, "a retention that is unknown or none grants no repeat: it must be 1")
	case !a.contract.KeySupported && !a.contract.Absence.Provable:
		c.refuse(path, "without a key or provable absence there is no ground for a repeat: it must be 1")
	}
}

func (c *compiler) lintOutcomes(a *action, path string) {
	success := false
	for i, r := range a.outcomes {
		at := path + "[" + strconv.Itoa(i) + "]"
		conditional := len(r.header)+len(r.body) > 0
		switch r.word {
		case operation.OutcomeSuccess:
			success = true
			if !r.externalID.given {
				c.refuse(at+".external_id", "a success names its object")
			}
			if !r.status.within(200, 299) {
				c.refuse(at+".status", "a success has a status from 200 to 299")
			}
			if own := r.externalID.own; r.externalID.given && r.externalID.at == nil && !a.chosen(own) {
				c.refuse(at+".external_id", "must be a JSON pointer, or a template with the operation's own id (K3: with the argument of the scope)")
			}
		case operation.OutcomeRejected:
			c.lintRejected(r, at)
		case operation.OutcomeNotApplied, operation.OutcomeBusy:
			if !conditional && (!r.status.within(300, 499) || r.status.has(408)) {
				c.refuse(at+".status", "%s over a status below 300, 408 or 5xx needs a condition on header or body", r.word)
			}
		case operation.OutcomeExists, operation.OutcomeMismatch, operation.OutcomeUnidentified,
			operation.OutcomeUncertain, operation.OutcomeNotSent:
		}
		if a.request.encoding == encodingGraphQL && r.status.touches(200, 299) && len(r.body) == 0 && r.word != operation.OutcomeUncertain {
			c.refuse(at+".body", "%s over a status of 2xx needs a condition on the body: GraphQL answers errors with 200", r.word)
		}
		if r.word != operation.OutcomeSuccess && r.externalID.given {
			c.refuse(at+".external_id", "only a success names its object")
		}
		if r.final && r.word != operation.OutcomeUncertain && r.word != operation.OutcomeUnidentified {
			c.refuse(at+".final", "only an unknown outcome can end repeats")
		}
		if r.answersKey && (r.word != operation.OutcomeRejected || !a.contract.KeySupported) {
			c.refuse(at+".answers", "only a rejection of an action with a key can answer the key")
		}
	}
	if !success {
		c.refuse(path, "no rule gives success")
	}
}

// chosen reports whether a template names an id that the client chose.
func (a *action) chosen(id template) bool {
	if a.contract.Class != operation.ClassUpsert {
		return id.own()
	}
	external := argsOf(a.scope.refs())
	return id.own() || slices.ContainsFunc(argsOf(id.refs()), func(r ref) bool { return slices.Contains(external, r) })
}

// lintRejected: a definite no must not catch what says nothing definite.
func (c *compiler) lintRejected(r rule, at string) {
	for _, status := range []int{408, 425, 429} {
		if r.status.has(status) {
			c.refuse(at+".status", "status %d is no definite no", status)
		}
	}
	if r.status.touches(500, 599) {
		c.refuse(at+".status", "a server error is no definite no")
	}
	if r.status.touches(100, 199) || r.status.touches(300, 399) {
		c.refuse(at+".status", "a status of 1xx or 3xx is no definite no")
	}
	if r.status.touches(200, 299) && len(r.body) == 0 {
		c.refuse(at+".status", "a rejection with status 2xx needs a condition on the body")
	}
}

// lintLookup: what confirms an operation carries its own mark, and the request
// has written that mark.
func (c *compiler) lintLookup(a *action, l lookup, at string) {
	if !l.confirms && a.contract.Class != operation.ClassUpsert {
		c.refuse(at+".match", "needs a hard rule with the operation's own key, uuid or label, as the request writes it")
	}
	if l.consistency != consistencyDirect && l.lag <= 0 {
		c.refuse(at+".lag", "a lookup that is %s needs a lag", l.consistency)
	}
	if l.proves == provesAbsence {
		c.lintProof(l, at)
	}
}

// lintProof: what is not there is proven only by a read of what was written, of
// all of it.
func (c *compiler) lintProof(l lookup, at string) {
	if l.consistency != consistencyDirect {
		c.refuse(at+".proves", "lookup %s is %s: an index proves no absence", l.name, l.consistency)
	}
	if l.paging != nil && l.paging.kind == pagingNumber {
		c.refuse(at+".proves", "numbered pages shift while they are read, which proves no absence: use a cursor or a read by id")
	}
}

// sameMark reports whether two references stand for the same text.
func sameMark(a, b ref) bool {
	name := func(r ref) string {
		if r.name == opUUID {
			return opKey // the key is the operation's UUID
		}
		return r.name
	}
	return a.own() && b.own() && name(a) == name(b)
}

func (c *compiler) lintAbsence(f *File, a *action, path string) {
	if !a.contract.Absence.Provable {
		return
	}
	if f.Proof == operation.ProofAssumed {
		c.refuse(path+".provable", "an assumed promise proves no absence")
	}
	if !slices.ContainsFunc(a.lookups, func(l lookup) bool { return l.proves == provesAbsence }) {
		c.refuse(path+".provable", "absence needs a direct lookup that says proves: absence; an index proves none")
	}
	if a.contract.Absence.EmptyReads < 1 {
		c.refuse(path+".empty_reads", "must be 1 or more")
	}
	if a.contract.Absence.EmptyReads > 1 && a.contract.Absence.Spacing <= 0 {
		c.refuse(path+".spacing", "several empty reads need a spacing")
	}
}

// lintArguments: every argument that a template needs is there after binding.
func (c *compiler) lintArguments(a *action, path string) {
	var told []string
	for _, r := range append(a.refs(), a.scope.refs()...) {
		if r.space != spaceArgs || slices.Contains(told, r.name) {
			continue
		}
		if fault := argumentFault(a.schemaDoc, r); fault != "" {
			told = append(told, r.name)
			c.refuse(path, "%s %s", r, fault)
		}
	}
}
