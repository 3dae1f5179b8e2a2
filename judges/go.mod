module github.com/opledger/opledger/judges

go 1.26.0

require (
	github.com/opledger/opledger v0.0.0
	github.com/stripe/stripe-go/v85 v85.0.0
)

require github.com/google/uuid v1.6.0 // indirect

replace github.com/opledger/opledger => ../
