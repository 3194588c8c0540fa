package track

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/tierlora/tierlora/internal/safetext"
)

// Variables that Kubeflow Trainer's controller sets in a TrainJob's containers if its feature gate TrainJobStatus is on
// (kubeflow/trainer, docs/proposals/2779-trainjob-progress; the types are in pkg/apis/trainer/v1alpha1).
const (
	kubeflowURL   = "KUBEFLOW_TRAINER_SERVER_URL"
	kubeflowCA    = "KUBEFLOW_TRAINER_SERVER_CA_CERT"
	kubeflowToken = "KUBEFLOW_TRAINER_SERVER_TOKEN"
)

// kubeflowEvery is the least time between two reports, as in Kubeflow's own clients. Start and end are reported at
// once.
const kubeflowEvery = 5 * time.Second

const maxKubeflowMetrics = 256 // the most metrics of a report, by the API's schema

// kubeflow reports progress, remaining time and metrics to a TrainJob's status.
type kubeflow struct {
	run    Run
	to     *url.URL
	client *http.Client
	sent   time.Time
	began  time.Time // time of the first event
	newest Metrics
	step   int
}

type kubeflowReport struct {
	Status kubeflowStatus `json:"trainerStatus"`
}

type kubeflowStatus struct {
	Percentage int              `json:"progressPercentage"`
	Remaining  *int32           `json:"estimatedRemainingSeconds,omitempty"`
	Metrics    []kubeflowMetric `json:"metrics,omitempty"`
	Updated    string           `json:"lastUpdatedTime"`
}

type kubeflowMetric struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// NewKubeflow returns the tracker of report_to: kubeflow.
func NewKubeflow(r Run) (Tracker, error) {
	for _, name := range []string{kubeflowURL, kubeflowCA, kubeflowToken} {
		if r.Getenv(name) == "" {
			return nil, errors.New("training.report_to: kubeflow needs " + name +
				", which Kubeflow Trainer sets in a TrainJob with its feature gate TrainJobStatus")
		}
	}
	u, err := address(kubeflowURL, r.Getenv(kubeflowURL))
	if err == nil && u.Scheme != "https" {
		err = errors.New(kubeflowURL + ": is not an https address, so the token would be sent in the clear")
	}
	if err != nil {
		return nil, err
	}
	return &kubeflow{run: r, to: u}, nil
}

func (k *kubeflow) Send(ctx context.Context, events []Event) (int, error) {
	urgent, end := false, ""
	for _, e := range events {
		if k.began.IsZero() {
			k.began = e.Time
		}
		k.step = max(k.step, e.Step)
		if e.Kind == KindStep || e.Kind == KindEval {
			k.newest = mergeMetrics(k.newest, e.Metrics)
		}
		urgent, end = urgent || e.Kind == KindStart || e.Kind == KindEnd, e.Status
	}
	now := events[len(events)-1].Time
	if !urgent && now.Sub(k.sent) < kubeflowEvery {
		return len(events), nil // the next report has the newest numbers
	}
	if err := k.report(ctx, k.status(now, end)); err != nil {
		return 0, err
	}
	k.sent = now
	return len(events), nil
}

// status returns a report that stays at 99% at most until all steps are done.
func (k *kubeflow) status(now time.Time, end string) kubeflowReport {
	s := kubeflowStatus{Updated: now.UTC().Format(time.RFC3339)}
	if k.run.Total > 0 {
		s.Percentage = min(99, 100*k.step/k.run.Total)
	}
	var remaining int32
	if end == StatusDone {
		s.Percentage, s.Remaining = 100, &remaining
	} else if done := k.step - k.run.Done; done > 0 && end == "" {
		left := now.Sub(k.began).Seconds() / float64(done) * float64(k.run.Total-k.step)
		remaining = int32(min(left, 1<<30))
		s.Remaining = &remaining
	}
	for _, m := range k.newest[:min(len(k.newest), maxKubeflowMetrics)] {
		s.Metrics = append(s.Metrics, kubeflowMetric{m.Name, strconv.FormatFloat(m.Value, 'g', -1, 64)})
	}
	return kubeflowReport{s}
}

// report posts with the current token, which the cluster replaces during the run.
func (k *kubeflow) report(ctx context.Context, body kubeflowReport) error {
	if k.client == nil {
		pem, err := os.ReadFile(k.run.Getenv(kubeflowCA))
		roots := x509.NewCertPool()
		if err == nil && !roots.AppendCertsFromPEM(pem) {
			err = errors.New("no certificate is in it")
		}
		if err != nil {
			return &Permanent{fmt.Errorf("%s: %w", kubeflowCA, err)}
		}
		k.client = newClient(roots)
	}
	token, err := os.ReadFile(k.run.Getenv(kubeflowToken))
	if err != nil {
		return &Permanent{fmt.Errorf("%s: %w", kubeflowToken, err)}
	}
	safetext.Keep(strings.TrimSpace(string(token)))
	header := http.Header{"Authorization": {"Bearer " + strings.TrimSpace(string(token))}}
	return call(ctx, k.client, http.MethodPost, k.to, header, body, nil)
}

func (k *kubeflow) Close() error {
	if k.client != nil {
		k.client.CloseIdleConnections()
	}
	return nil
}
