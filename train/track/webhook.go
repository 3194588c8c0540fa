package track

import (
	"context"
	"errors"
	"net/http"
	"net/url"
)

// The environment of report_to: webhook.
const (
	webhookURLVariable    = "TRACKING_WEBHOOK_URL"
	webhookSecretVariable = "TRACKING_WEBHOOK_SECRET"
)

// webhook posts each event as JSON.
type webhook struct {
	run    Run
	to     *url.URL
	header http.Header
	client *http.Client
}

// webhookBody is what is posted.
type webhookBody struct {
	Event
	RunName    string            `json:"run_name"`
	Experiment string            `json:"experiment,omitempty"`
	Tags       map[string]string `json:"tags,omitempty"`
}

// NewWebhook makes the tracker of report_to: webhook. Where TRACKING_WEBHOOK_SECRET is set, each request has it as its
// bearer token.
func NewWebhook(r Run) (Tracker, error) {
	from, text := "tracking.webhook_url", r.WebhookURL
	if text == "" {
		from, text = webhookURLVariable, r.Getenv(webhookURLVariable)
	}
	if text == "" {
		return nil, errors.New("training.report_to: webhook needs tracking.webhook_url, or " + webhookURLVariable + " in the environment")
	}
	u, err := address(from, text)
	if err != nil {
		return nil, err
	}
	w := &webhook{run: r, to: u, header: http.Header{}, client: newClient(nil)}
	if secret := r.Getenv(webhookSecretVariable); secret != "" {
		w.header.Set("Authorization", "Bearer "+secret)
	}
	return w, nil
}

func (w *webhook) Send(ctx context.Context, events []Event) (int, error) {
	for i, e := range events {
		if err := call(ctx, w.client, http.MethodPost, w.to, w.header, webhookBody{e, w.run.RunName, w.run.Experiment, w.run.Tags}, nil); err != nil {
			return i, err
		}
	}
	return len(events), nil
}

func (w *webhook) Close() error { w.client.CloseIdleConnections(); return nil }
