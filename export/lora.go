package export

import (
	"context"
	"errors"

	"github.com/tierlora/tierlora/session"
)

func ggufLoRA(ctx context.Context, o Options, env session.Env) (Report, error) {
	return Report{}, errors.New("not yet")
}

func ollama(ctx context.Context, o Options, env session.Env) (Report, error) {
	return Report{}, errors.New("not yet")
}
