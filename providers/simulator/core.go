package simulator

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"
)

// index says through what an object is looked for.
type index int

const (
	inList   index = iota // a list of the collection
	inSearch              // a search engine beside it
)

// make builds an object of a collection from the request's decoded body.
func (x *exchange) make(collection, title string, args map[string]any) *object {
	o := &object{args: args}
	o.Collection, o.Title, o.Label = collection, title, x.label
	return o
}

// create commits an object, unless its id is taken. An object without an id gets
// a new one. The answer is shown(o), also when a key replays the present state.
func (st *state) create(x *exchange, o *object, now time.Time, shown func(*object) answer) answer {
	made, wrong := st.put(x, o, now)
	if wrong != nil {
		return x.failed(*wrong)
	}
	a := shown(made)
	a.again = func() answer { return shown(made) }
	return a
}

// put is create without its answer: it returns the object that is there now.
func (st *state) put(x *exchange, o *object, now time.Time) (*object, *failure) {
	if len(st.objects) >= maxObjects {
		return nil, &failure{shape: shape{trouble: tableFull}, message: "the table of objects is full"}
	}
	if o.ID == "" {
		o.ID = x.dialect.newID(st, x, o.Collection)
	} else if there := st.inTheWay(x, o.Collection, o.ID); there != nil {
		if x.settings.UniqueCompare && there.print == x.fingerprint {
			return there, nil
		}
		return nil, &failure{shape: shape{trouble: idTaken}, id: o.ID, message: "the id exists already"}
	}
	st.commit(x, o, now)
	return o, nil
}

// inTheWay is the object that an id chosen by the client collides with.
func (st *state) inTheWay(x *exchange, collection, id string) *object {
	for _, there := range st.byName[objectName{x.account, collection, id}] {
		free := there.Deleted && x.settings.UniqueIDReuse
		unseen := !there.settled && x.settings.UniqueID == UniqueWeak
		if !free && !unseen {
			return there
		}
	}
	return nil
}

// read is the direct read by id; nil if there is no such object yet.
func (st *state) read(x *exchange, collection, id string, now time.Time) *object {
	for _, o := range st.byName[objectName{x.account, collection, id}] {
		if !o.Deleted && !now.Before(o.ReadableAt) {
			return o
		}
	}
	return nil
}

// visible are the objects that a list or a search shows now, oldest first, or
// the answer where there is none to be had.
func (st *state) visible(x *exchange, collection string, in index, now time.Time, match func(*object) bool) ([]*object, *answer) {
	found, wrong := st.look(x, collection, in, now, match)
	if wrong == nil {
		return found, nil
	}
	a := x.failed(*wrong)
	return nil, &a
}

// holders are the objects of a collection that have a value at a place and that
// an upsert sees. With a weak guard it overlooks those that are being made.
func (st *state) holders(x *exchange, collection, pointer, value string) []*object {
	var hits []*object
	for _, o := range st.objects {
		unseen := !o.settled && x.settings.UniqueID == UniqueWeak
		if o.Account == x.account && o.Collection == collection && !o.Deleted && !unseen && textAt(o.args, pointer) == value {
			hits = append(hits, o)
		}
	}
	return hits
}

// overwrite changes an object as an upsert does: what the body names is new, the
// rest stays. The request counts as one that reached the object.
func (o *object) overwrite(x *exchange, title string, now time.Time) {
	merged := make(map[string]any, len(o.args)+len(x.args))
	maps.Copy(merged, o.args)
	maps.Copy(merged, x.args)
	o.args, o.Fields, o.UpsertedAt = merged, fieldsOf(merged), now.UTC()
	if title != "" {
		o.Title = title
	}
	if x.label != "" {
		o.Label = x.label
	}
	x.row.ObjectID = o.ID
}

// look is visible without the answer.
func (st *state) look(x *exchange, collection string, in index, now time.Time, match func(*object) bool) ([]*object, *failure) {
	if x.settings.SearchOff {
		return nil, &failure{shape: shape{trouble: noSearch}, message: "there is no search"}
	}
	if x.settings.SearchOutage {
		return nil, &failure{shape: shape{trouble: searchDown}, message: "the search is down"}
	}
	if x.settings.FlakyIndex > 0 && st.flaky.Float64() < x.settings.FlakyIndex {
		return nil, nil
	}
	var found []*object
	for _, o := range st.objects {
		at := o.VisibleAt
		if in == inSearch {
			at = o.SearchableAt
		}
		if o.Account == x.account && (collection == anyCollection || o.Collection == collection) && !o.Deleted && !now.Before(at) && match(o) {
			found = append(found, o)
		}
	}
	return found, nil
}

// limit reads the size of a page, at most that of the settings.
func (x *exchange) limit(param string, otherwise int) (int, *answer) {
	text := x.query.Get(param)
	if text == "" {
		return min(otherwise, x.settings.PageSize), nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		a := x.fail(badLimit, param+" must be a positive number")
		return 0, &a
	}
	return min(n, x.settings.PageSize), nil
}

// pageAfter is the page that follows the object with an id, for lists that go on
// by the last id.
func pageAfter(all []*object, after string, limit int) (page []*object, more, ok bool) {
	if after != "" {
		i := slices.IndexFunc(all, func(o *object) bool { return o.ID == after })
		if i < 0 {
			return nil, false, false
		}
		all = all[i+1:]
	}
	return all[:min(limit, len(all))], len(all) > limit, true
}

// pageNumber is a numbered page, from 1.
func pageNumber(all []*object, number, size int) (page []*object, more bool) {
	from := min((max(number, 1)-1)*size, len(all))
	to := min(from+size, len(all))
	return all[from:to], to < len(all)
}

// views shows objects in a list, never nil.
func views(objects []*object, show func(*object) any) []any {
	list := make([]any, len(objects))
	for i, o := range objects {
		list[i] = show(o)
	}
	return list
}

// anyCollection lets a search look through all collections.
const anyCollection = "*"

// every is a match for all objects.
func every(*object) bool { return true }

// edit changes title and label wherever the object has them.
func (o *object) edit(e ObjectEdit, now time.Time) {
	if e.Title != nil {
		old := o.Title
		o.Title = *e.Title
		o.rewrite(func(text string) string {
			if text == old {
				return *e.Title
			}
			return text
		})
	}
	if e.Label != nil {
		old := o.Label
		o.Label = *e.Label
		if old != "" {
			o.rewrite(func(text string) string { return strings.ReplaceAll(text, old, *e.Label) })
		}
	}
	o.EditedAt = now
}

// rewrite changes every text of what the provider keeps.
func (o *object) rewrite(change func(string) string) {
	if o.args == nil {
		return
	}
	o.args, _ = replaceTexts(o.args, change).(map[string]any)
	o.Fields = fieldsOf(o.args)
}

// fieldsOf is the body's form for the truth table.
func fieldsOf(args map[string]any) map[string]json.RawMessage {
	fields := make(map[string]json.RawMessage, len(args))
	for name, v := range args {
		raw, err := json.Marshal(v)
		if err != nil {
			panic("simulator: encode a field: " + err.Error())
		}
		fields[name] = raw
	}
	return fields
}

// The forms of ids. They look random and follow from the count of objects, so
// that two runs with the same requests have the same ids.

// next counts the objects.
func (st *state) next() int64 {
	n := st.nextID
	st.nextID++
	return n
}

func digest(n int64) [32]byte {
	return sha256.Sum256(binary.BigEndian.AppendUint64(nil, uint64(n)))
}

// wordID is a prefix with letters and digits after it.
func wordID(prefix string, n int64, length int) string {
	sum := digest(n)
	text := new(big.Int).SetBytes(sum[:]).Text(62)
	return prefix + text[:length]
}

// uuidID is a UUID of version 4.
func uuidID(n int64) string {
	sum := digest(n)
	sum[6], sum[8] = sum[6]&0x0f|0x40, sum[8]&0x3f|0x80
	h := hex.EncodeToString(sum[:16])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// accountNumber is an account as a number, for providers that count theirs: the
// account itself where it is one.
func accountNumber(account string) int64 {
	if n, err := strconv.ParseInt(account, 10, 64); err == nil && n > 0 {
		return n
	}
	sum := sha256.Sum256([]byte(account))
	return int64(binary.BigEndian.Uint32(sum[:4])>>4) + 1
}

// commitSide commits what a provider makes on its own beside an object: the same
// without label and key, in the same collection.
func (st *state) commitSide(x *exchange, from *object, now time.Time) {
	if len(st.objects) >= maxObjects {
		return
	}
	side := &object{}
	side.Collection, side.Title, side.Side = from.Collection, from.Title, true
	side.Fields = from.Fields
	if from.args != nil {
		side.args, _ = replaceTexts(from.args, func(text string) string {
			if from.Label == "" {
				return text
			}
			return strings.ReplaceAll(text, from.Label, "")
		}).(map[string]any)
	}
	side.ID = x.dialect.newID(st, x, from.Collection)
	made, row := x.made, *x.row
	st.commit(x, side, now)
	side.IdempotencyKey, side.settled = "", true
	x.made, *x.row = made, row
}
