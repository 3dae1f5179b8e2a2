// Package judges holds the simulator against the clients that the providers
// themselves publish: what a vendor's own client makes of an answer is an opinion
// that is not ours. Here are those in Go; ../npm has the others.
package judges
