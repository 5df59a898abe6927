package postgres

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/leatdata/leat/connector"
)

func probesOf(t testing.TB, a *anchored) []connector.Probe {
	t.Helper()
	probes, err := a.Check(t.Context())
	must(t, err)
	for _, p := range probes {
		if (p.Status == connector.Pass) != (p.Fix == "") || p.Name == "" || p.Detail == "" {
			t.Errorf("a probe without what it takes: %+v", p)
		}
	}
	return probes
}

func probeNamed(t testing.TB, a *anchored, name string) connector.Probe {
	t.Helper()
	probes := probesOf(t, a)
	i := slices.IndexFunc(probes, func(p connector.Probe) bool { return p.Name == name })
	if i < 0 {
		t.Fatalf("no probe %q in %+v", name, probes)
	}
	return probes[i]
}

// complaints are the probes that do not pass.
func complaints(t testing.TB, a *anchored) []connector.Probe {
	t.Helper()
	return slices.DeleteFunc(probesOf(t, a), func(p connector.Probe) bool { return p.Status == connector.Pass })
}

// runFixes does exactly what the probes say.
func runFixes(t testing.TB, conn *pgx.Conn, probes ...connector.Probe) {
	t.Helper()
	for _, p := range probes {
		for sql := range strings.SplitSeq(p.Fix, ";") {
			if sql = strings.TrimSpace(sql); sql != "" {
				sqlExec(t, conn, sql)
			}
		}
	}
}
