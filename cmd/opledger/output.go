package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/opledger/opledger/api"
)

// printJSON prints one value, indented or as a line.
func printJSON(w io.Writer, v any, lines bool) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if !lines {
		enc.SetIndent("", "  ")
	}
	return enc.Encode(v)
}

func printAnswer(w io.Writer, output string, a api.Answer) error {
	if output != "table" {
		return printJSON(w, a, output == "jsonl")
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	row := func(name string, value any) { fmt.Fprintf(t, "%s\t%v\n", name, value) }
	row("operation", a.OperationID)
	row("status", status(a))
	if a.ExternalID != "" {
		row("external id", a.ExternalID)
	}
	if a.Reason != "" {
		row("reason", a.Reason)
	}
	row("what", fmt.Sprintf("%s at %s, account %s", a.Action, a.Provider, a.Account))
	row("attempts", a.Attempts)
	row("version", a.Version)
	row("next", next(a))
	if a.Repeated {
		row("repeated", "yes: it was recorded before")
	}
	row("say", a.Say)
	return t.Flush()
}

func printAnswers(w io.Writer, output string, answers []api.Answer) error {
	switch output {
	case "json":
		return printJSON(w, append([]api.Answer{}, answers...), false)
	case "jsonl":
		for _, a := range answers {
			if err := printJSON(w, a, true); err != nil {
				return err
			}
		}
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "OPERATION\tSTATUS\tFOR\tPROVIDER\tACTION\tEXTERNAL ID\tATTEMPTS\tVERSION\tNEXT")
	for _, a := range answers {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\n", a.OperationID, status(a), age(a), a.Provider, a.Action,
			cmp.Or(a.ExternalID, "-"), a.Attempts, a.Version, next(a))
	}
	return t.Flush()
}

// printReviews prints what waits for a person.
func printReviews(w io.Writer, output string, answers []api.Answer) error {
	if output != "table" {
		return printAnswers(w, output, answers)
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "OPERATION\tSTATUS\tREVIEW\tSINCE\tASSIGNEE\tPROVIDER\tACTION\tVERSION")
	for _, a := range answers {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\n", a.OperationID, a.Status, cmp.Or(string(a.Review), "held: "+a.Hold), waitsSince(a).UTC().Format(time.RFC3339),
			cmp.Or(a.Assignee, "-"), a.Provider, a.Action, a.Version)
	}
	return t.Flush()
}

// waitsSince is since when a person is asked.
func waitsSince(a api.Answer) time.Time {
	if a.Review == "" {
		return a.RecordedAt // held since it was recorded
	}
	return a.ReviewSince
}

func status(a api.Answer) string {
	s := string(a.Status)
	if a.Hold != "" && !a.Status.Final() {
		s += " (held: " + a.Hold + ")"
	}
	if a.Review != "" {
		s += " (review: " + string(a.Review) + ")"
	}
	if a.Undetermined {
		s += " (undetermined)"
	}
	if a.Duplicate {
		s += " (duplicate found)"
	}
	return s
}

func age(a api.Answer) string {
	return (time.Duration(a.AgeMS) * time.Millisecond).Round(time.Second).String()
}

func next(a api.Answer) string {
	if a.NextAt.IsZero() {
		return string(a.NextAction)
	}
	return fmt.Sprintf("%s at %s", a.NextAction, a.NextAt.UTC().Format(time.RFC3339))
}
