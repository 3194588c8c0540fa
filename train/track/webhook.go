package track

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/tierlora/tierlora/internal/safetext"
)

// Environment variables of report_to: webhook.
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

// webhookBody is the JSON body of a post.
type webhookBody struct {
	Event
	RunName    string            `json:"run_name"`
	Experiment string            `json:"experiment,omitempty"`
	Tags       map[string]string `json:"tags,omitempty"`
}

// nobody is a tracker that sends nothing; its notice says why.
type nobody struct{ notice string }

func (n *nobody) Notice() string                                    { return n.notice }
func (*nobody) Send(_ context.Context, events []Event) (int, error) { return len(events), nil }
func (*nobody) Close() error                                        { return nil }

// NewWebhook returns the tracker of report_to: webhook. If TRACKING_WEBHOOK_SECRET is set, each request has it as its
// bearer token.
func NewWebhook(r Run) (Tracker, error) {
	from, text := "tracking.webhook_url", r.WebhookURL
	saved := hidden(text)
	if text == "" || saved {
		from, text = webhookURLVariable, r.Getenv(webhookURLVariable)
	}
	if text == "" && saved {
		return &nobody{notice: "tracking: webhook: the saved configuration hides the address: set " +
			webhookURLVariable + " and the webhook is told of this run; now it is not"}, nil
	}
	if text == "" {
		return nil, errors.New("training.report_to: webhook needs tracking.webhook_url, or " + webhookURLVariable +
			" in the environment")
	}
	u, err := address(from, text)
	if err != nil {
		return nil, err
	}
	safetext.Keep(text)
	w := &webhook{run: r, to: u, header: http.Header{}, client: newClient(nil)}
	if secret := r.Getenv(webhookSecretVariable); secret != "" {
		w.header.Set("Authorization", "Bearer "+secret)
	}
	return w, nil
}

func (w *webhook) Send(ctx context.Context, events []Event) (int, error) {
	for i, e := range events {
		if err := call(ctx, w.client, http.MethodPost, w.to, w.header,
			webhookBody{e, w.run.RunName, w.run.Experiment, w.run.Tags}, nil); err != nil {
			return i, err
		}
	}
	return len(events), nil
}

func (w *webhook) Close() error { w.client.CloseIdleConnections(); return nil }
