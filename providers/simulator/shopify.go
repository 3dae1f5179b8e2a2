package simulator

import (
	"net/http"
	"time"
)

const shopifyAdjustments = "inventory_adjustments"

// shopify speaks as Shopify's Admin GraphQL API, for inventory adjustments with
// the directive @idempotent.
//
// From the pages that the contract shopify of the catalogue cites: the directive,
// its 24 hours, the codes of a key that is in use or came with other parameters,
// the replay from the state of today. Chosen: that a key is one for the shop, and
// the texts of messages.
func shopify() dialect {
	return dialect{
		name: "shopify", about: "Shopify Admin GraphQL: inventory adjustments with @idempotent (K1)",
		settings: Settings{
			Keys: true, Mismatch: Mismatch400, Concurrent: Concurrent409, Replay: ReplayCurrent, SearchOff: true, ClientIDsOff: true,
		},
		auth:      inHeader("X-Shopify-Access-Token"),
		key:       shopifyKey,
		requestID: "X-Request-Id",
		newID: func(st *state, _ *exchange, _ string) string {
			return "gid://shopify/InventoryAdjustmentGroup/" + numbered(st.next())
		},
		errors: []shape{
			{trouble: badToken, status: 401},
			{trouble: badContent, status: 200, code: "INVALID_INVENTORY_ITEM"},
			{trouble: keyMismatch, status: 400, code: "IDEMPOTENCY_KEY_PARAMETER_MISMATCH", wire: http.StatusOK},
			{trouble: keyInUse, status: 409, code: "IDEMPOTENCY_CONCURRENT_REQUEST", wire: http.StatusOK},
			{trouble: rateLimited, status: 429, code: "THROTTLED", wire: http.StatusOK},
		},
		errorBody: func(f failure) any {
			if f.trouble == keyMismatch || f.trouble == keyInUse || f.trouble == badContent {
				return map[string]any{"data": map[string]any{"inventoryAdjustQuantities": map[string]any{
					"inventoryAdjustmentGroup": nil, "userErrors": []any{map[string]any{"code": f.code, "message": f.message}},
				}}}
			}
			return map[string]any{"data": nil, "errors": []any{map[string]any{"message": f.message, "extensions": map[string]any{"code": f.code}}}}
		},
		routes: []route{graphQL("/admin/api/{version}/graphql.json", map[string]resolver{
			"inventoryAdjustQuantities": {op: opCreate, keyed: true, run: shopifyAdjust},
			"shop": {op: opAccount, run: func(_ *state, x *exchange, _ field, _ time.Time) (any, *failure) {
				return map[string]any{"id": x.account, "name": x.account}, nil
			}},
		})},
	}
}

// shopifyKey is the argument of the directive on the first root field.
func shopifyKey(x *exchange) string {
	if len(x.fields) == 0 {
		return ""
	}
	return textAt(x.fields[0].directives["idempotent"], "/key")
}

func shopifyAdjust(st *state, x *exchange, f field, now time.Time) (any, *failure) {
	input := mapAt(f.args, "/input")
	if textAt(input, "/changes/0/inventoryItemId") == "" {
		return nil, &failure{shape: shape{trouble: badContent}, message: "the item does not exist"}
	}
	made, wrong := st.put(x, x.make(shopifyAdjustments, "", input), now)
	if wrong != nil {
		return nil, wrong
	}
	return map[string]any{"inventoryAdjustmentGroup": map[string]any{"id": made.ID}, "userErrors": []any{}}, nil
}
