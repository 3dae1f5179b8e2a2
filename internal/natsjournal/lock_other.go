//go:build !unix

package natsjournal

import (
	"errors"
	"os"
)

// flock has no safe form here, so the embedded server is not offered.
func flock(*os.File) error {
	return errors.New("an embedded store can only be locked on a unix system; use an external server")
}
