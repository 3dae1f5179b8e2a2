// Package api holds the words of the service: the requests that callers send,
// the answers and the problem objects that they get, the same over every
// transport. It decides nothing and talks to nobody.
package api

// The verbs of the service, the last token of its subjects.
const (
	VerbSubmit   = "submit"
	VerbGet      = "get"
	VerbWait     = "wait"
	VerbList     = "list"
	VerbEvidence = "evidence"
	VerbApprove  = "approve"
	VerbDecide   = "decide"
	VerbCancel   = "cancel"
)

// Verbs lists every verb.
func Verbs() []string {
	return []string{
		VerbSubmit, VerbGet, VerbWait, VerbList, VerbEvidence, VerbApprove, VerbDecide, VerbCancel,
	}
}
