package events

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// Rolling is a digest over the log from its beginning up to and including the
// message Seq. Two logs with equal rolling digests hold the same messages on the
// same places. The zero value stands before the first message.
//
// The digest of message n is SHA-256 over the digest of n−1 (32 zero bytes
// before the first) and the leaf of n; the leaf is SHA-256 over the sequence
// number (8 bytes, big-endian), the length of the subject (4 bytes, big-endian),
// the subject, and SHA-256 of the stored body.
type Rolling struct {
	Seq uint64
	Sum [sha256.Size]byte
}

// Leaf is what one message adds to a rolling digest.
type Leaf [sha256.Size]byte

// LeafOf returns the leaf of a stored message.
func LeafOf(seq uint64, subject string, body []byte) Leaf {
	sum := sha256.Sum256(body)
	b := make([]byte, 0, 12+len(subject)+len(sum))
	b = binary.BigEndian.AppendUint64(b, seq)
	b = binary.BigEndian.AppendUint32(b, uint32(len(subject)))
	b = append(b, subject...)
	b = append(b, sum[:]...)
	return sha256.Sum256(b)
}

// Next returns the digest that also covers the message seq.
func (r Rolling) Next(seq uint64, leaf Leaf) Rolling {
	var b [2 * sha256.Size]byte
	copy(b[:], r.Sum[:])
	copy(b[sha256.Size:], leaf[:])
	return Rolling{Seq: seq, Sum: sha256.Sum256(b[:])}
}

// Digest names the algorithm, too.
func (r Rolling) Digest() string { return "sha256:" + hex.EncodeToString(r.Sum[:]) }
