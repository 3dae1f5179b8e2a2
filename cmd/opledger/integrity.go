package main

import (
	"errors"
	"fmt"
	"os/user"
	"time"

	"github.com/spf13/cobra"

	"github.com/opledger/opledger/internal/node"
)

func newIntegrity() *cobra.Command {
	cmd := &cobra.Command{
		Use: "integrity", Short: "Clear an integrity alarm", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newClear())
	return cmd
}

func newClear() *cobra.Command {
	var l logFlags
	var t target
	var o node.ClearOptions
	var since string
	cmd := &cobra.Command{
		Use: "clear", Short: "Accept a damaged log as it is, and let attempts start again", Args: cobra.NoArgs,
		Long: `Accept the log as it is now, and end the integrity alarm. Run "opledger verify"
first; if a backup or a replica holds what was lost, restore that instead.

Whatever the log has lost may have been sent. So every operation that is not final
becomes unknown (log_damage) and is looked for. And for the time of --look-first the
first request of every new operation is looked for before it is sent: somebody may hand
in again what was lost as a whole. Where a provider offers neither a search nor a key, a
person decides before anything is sent. Make that time as long as anything may still be
handed in again.

The record names who accepted what, and why. It is also what to run after an older
backup was restored, with --since: the time of the last message in the backup.`,
		Example: `  opledger integrity clear --config FILE --reason "disk replaced, nothing to restore"`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := t.checkOutput(); err != nil {
				return err
			}
			if o.Reason == "" {
				return usage("--reason is required: it is recorded for ever")
			}
			if o.Actor == "" {
				u, err := user.Current()
				if err != nil {
					return usage("--actor is required: %w", err)
				}
				o.Actor = u.Username
			}
			if since != "" {
				at, err := time.Parse(time.RFC3339, since)
				if err != nil {
					return usage("--since must be like 2026-11-30T12:00:00Z")
				}
				o.Since = at
			}
			log, err := l.open(cmd)
			if err != nil {
				return err
			}
			show, done := progress(cmd, "clear")
			o.Progress = show
			c, err := log.Clear(cmd.Context(), o)
			done()
			if err = errors.Join(err, log.Close()); err != nil {
				return err
			}
			return printCleared(cmd, t.output, c)
		},
	}
	l.flags(cmd)
	t.outputFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&o.Reason, "reason", "", "why the log is accepted as it is; recorded")
	f.StringVar(&o.Actor, "actor", "", "who accepts it; recorded (default: the user of this machine)")
	f.DurationVar(&o.LookFirst, "look-first", node.DefaultLookFirst, "for how long lost operations may be handed in again")
	f.StringVar(&since, "since", "", "the last moment before the damage, such as 2026-11-30T12:00:00Z (default: what the alarm says)")
	return cmd
}

func printCleared(cmd *cobra.Command, output string, c node.Cleared) error {
	if output != "table" {
		return printJSON(cmd.OutOrStdout(), map[string]any{
			"seq": c.Seq, "actor": c.Actor, "reason": c.Reason, "alarm": c.Alarm, "damage": damage(c.Damage),
			"accepted": map[string]any{
				"up_to": c.Accepted.Seq, "digest": c.Accepted.Rolling, "first": c.Accepted.First, "missing": c.Accepted.Deleted,
			},
			"in_doubt": c.InDoubt, "since": c.Since, "look_first_until": c.Until,
		}, output == "jsonl")
	}
	out := cmd.OutOrStdout()
	if c.Alarm == "" {
		fmt.Fprintln(out, "no recorded alarm stood")
	} else {
		fmt.Fprintln(out, "cleared:", c.Alarm)
	}
	for _, f := range c.Damage {
		fmt.Fprintf(out, "accepted: %s: %s\n", f.Kind, f)
	}
	_, err := fmt.Fprintf(out, "the log is accepted up to message %d; %d operation(s) are in doubt and looked for; "+
		"first requests are looked for until %s\n", c.Accepted.Seq, c.InDoubt, c.Until.Format(time.RFC3339))
	return err
}
