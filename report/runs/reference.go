package runs

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/report"
	"github.com/tierlora/tierlora/train"
)

// referenceCheck judges expect.reference from the comparison that the run wrote.
func (r *Run) referenceCheck() report.Checks {
	asked := r.Setting("expect.reference")
	c := report.Check{What: "expect.reference", State: report.Skip}
	switch {
	case r.Curve == nil && asked == "":
		return nil
	case r.Curve == nil && r.End == nil:
		c.Detail = "it is judged after the last step"
	case r.Curve == nil:
		c.Detail = train.ReferenceCurveFile + " is missing or can't be read"
	case asked != "" && asked != r.Curve.Reference:
		c.Detail = fmt.Sprintf("%s is of %s, the configuration asks for %s", train.ReferenceCurveFile, r.Curve.Reference, asked)
	default:
		j := r.Curve.Judge()
		c.State, c.Detail = report.Pass, j.Got+", wanted "+j.Want
		if !j.Met {
			c.State, c.Detail = report.Fail, strings.TrimPrefix(train.MissedOf([]train.Judged{j}).Error(), "expectation missed: ")
		}
	}
	return report.Checks{c}
}

// besideReference draws the run's curve and the band that expect.reference allows.
func (r *Run) besideReference() report.Plot {
	c := r.Curve
	made := make([]string, 0, len(c.MadeBy))
	for _, name := range slices.Sorted(maps.Keys(c.MadeBy)) {
		made = append(made, name+" "+c.MadeBy[name])
	}
	p := report.Plot{Title: "Loss beside the reference", XLabel: "step", YLabel: r.lossUnit(),
		Series: report.BesideReference(c.Window, c.Losses(), c.Seeds, c.Mean, c.Low, c.High),
		Note:   fmt.Sprintf("Reference: %s of %s, mean over seeds.", c.Reference, c.BaseModel)}
	if len(made) > 0 {
		p.Note += " Made by " + strings.Join(made, ", ") + "."
	}
	p.Note += fmt.Sprintf(" Allowed: %s spreads of the seeds and %s, in either direction.", report.Number(c.Tolerance.K), report.Number(c.Tolerance.Floor))
	return p
}
