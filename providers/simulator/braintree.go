package simulator

import (
	"net/http"
	"time"
)

const braintreeTransactions = "transactions"

// braintree speaks as Braintree's GraphQL API, for charges.
//
// From the pages that the contract braintree of the catalogue cites: no key, the
// order id as a label, the classes of errors. The gateway's duplicate check is off
// here, as a merchant may have it. Chosen: the lag of the search and the texts.
func braintree() dialect {
	return dialect{
		name: "braintree", about: "Braintree GraphQL: charges without a key, found by their order id (K4)",
		settings: labelled(0, time.Minute),
		auth:     basicOrBearer,
		newID:    func(st *state, _ *exchange, _ string) string { return wordID("dHJhbnNhY3Rpb25f", st.next(), 8) },
		errors: []shape{
			{trouble: badToken, status: 401, code: "AUTHENTICATION", wire: http.StatusOK},
			{trouble: badContent, status: 422, code: "VALIDATION", wire: http.StatusOK},
			{trouble: rateLimited, status: 429, code: "RESOURCE_LIMIT", wire: http.StatusOK},
		},
		errorBody: func(f failure) any {
			return map[string]any{"data": nil, "errors": []any{map[string]any{
				"message": f.message, "extensions": map[string]any{"errorClass": f.code, "errorType": "developer_error"},
			}}}
		},
		routes: []route{graphQL("/graphql", map[string]resolver{
			"chargePaymentMethod": {op: opCreate, run: braintreeCharge},
			"search":              {op: opSearch, run: braintreeSearch},
			"viewer": {op: opAccount, run: func(_ *state, x *exchange, _ field, _ time.Time) (any, *failure) {
				return map[string]any{"merchant": map[string]any{"id": x.account}}, nil
			}},
		})},
	}
}

func braintreeCharge(st *state, x *exchange, f field, now time.Time) (any, *failure) {
	input := mapAt(f.args, "/input")
	if textAt(input, "/transaction/amount") == "" {
		return nil, &failure{shape: shape{trouble: badContent}, message: "Amount is required."}
	}
	made, wrong := st.put(x, x.make(braintreeTransactions, "", input), now)
	if wrong != nil {
		return nil, wrong
	}
	return map[string]any{"transaction": braintreeTransaction(made)}, nil
}

func braintreeTransaction(o *object) map[string]any {
	return map[string]any{
		"id": o.ID, "orderId": valueAt(o.args, "/transaction/orderId"), "status": "SUBMITTED_FOR_SETTLEMENT",
		"createdAt": o.ShownAt.Format(shownTime),
	}
}

// braintreeSearch knows the transactions of an order id.
func braintreeSearch(st *state, x *exchange, f field, now time.Time) (any, *failure) {
	if len(f.fields) != 1 || f.fields[0].name != "transactions" {
		return nil, &failure{shape: shape{trouble: badQuery}, message: "the simulator searches transactions only"}
	}
	order := textAt(f.fields[0].args, "/input/orderId/is")
	found, wrong := st.look(x, braintreeTransactions, inSearch, now, func(o *object) bool {
		return textAt(o.args, "/transaction/orderId") == order
	})
	if wrong != nil {
		return nil, wrong
	}
	return map[string]any{"transactions": map[string]any{"edges": views(found, func(o *object) any {
		return map[string]any{"node": braintreeTransaction(o)}
	})}}, nil
}
