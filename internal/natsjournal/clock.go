package natsjournal

import (
	"context"
	"fmt"
	"time"
)

// Time returns what the clock of the log's server shows: the leader of the
// journal stamps events with it, so it is the clock of contract time.
func (j *Journal) Time(ctx context.Context) (time.Time, error) {
	info, err := streamInfo(ctx, j.js, j.names.Events)
	if err != nil {
		return time.Time{}, fmt.Errorf("natsjournal: read the server's clock: %w", err)
	}
	return info.TimeStamp, nil
}
