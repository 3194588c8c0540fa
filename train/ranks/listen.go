package ranks

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/tierlora/tierlora/internal/words"
)

// listenAt listens where the other processes look for rank 0: only on the address of that name, if it is an address of
// this host. A port that is still in use, by a run that is just ending, is retried for a while.
func listenAt(ctx context.Context, p Place, o Options) (net.Listener, error) {
	host, port, err := net.SplitHostPort(p.Coordinator)
	if err != nil {
		return nil, fmt.Errorf("listen at %q: %w", words.Clip(p.Coordinator, maxShown), err)
	}
	address, err := ownAddress(ctx, host, p.LocalWorld == p.World)
	if err != nil {
		return nil, fmt.Errorf("rank 0 listens at %s: %w; %s=HOST:PORT names another address of this host",
			p.Coordinator,
			err, CoordinatorVariable)
	}
	if address == "" {
		o.Logf("no interface of this host has the address of %s: rank 0 listens on all of them", host)
	}
	until := time.Now().Add(min(o.Timeout, o.Wait))
	for {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(address, port))
		if err == nil {
			return listener, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(until) {
			return nil, fmt.Errorf("rank 0 listens at %s: %w; %s=HOST:PORT names another port", p.Coordinator, err,
				CoordinatorVariable)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("rank 0 listens at %s: %w", p.Coordinator, err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// ownAddress returns the address to listen on for a host name: that of a local interface. Empty means all interfaces: a
// host may resolve its own name only as 127.0.1.1 while others know its address, or a port may be forwarded to it from
// another address.
func ownAddress(ctx context.Context, host string, oneHost bool) (string, error) {
	if ip := net.ParseIP(host); ip != nil {
		if mine, err := interfaces(); err == nil && !ip.IsLoopback() && !mine[ip.String()] {
			return "", nil
		}
		return host, nil
	}
	found, err := net.DefaultResolver.LookupIP(ctx, "ip", host)
	if err != nil && !oneHost {
		return "", nil // a name that only other hosts resolve
	}
	mine, ierr := interfaces()
	if ierr != nil {
		return "", ierr
	}
	local := ""
	for _, ip := range found {
		switch {
		case ip.IsLoopback() && local == "":
			local = ip.String()
		case !ip.IsLoopback() && mine[ip.String()]:
			return ip.String(), nil
		}
	}
	if local != "" && (oneHost || host == "localhost") {
		return local, nil
	}
	if oneHost && err != nil {
		return "", err
	}
	return "", nil
}

// interfaces returns the addresses of this host.
func interfaces() (map[string]bool, error) {
	all, err := net.InterfaceAddrs()
	mine := map[string]bool{}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok {
			mine[n.IP.String()] = true
		}
	}
	return mine, err
}
