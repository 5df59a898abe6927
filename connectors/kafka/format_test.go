package kafka_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connector/connectortest"
	"github.com/leatdata/leat/format/message/formats"
	"github.com/leatdata/leat/internal/kafkatest"
	"github.com/leatdata/leat/record"
)

// Every format that has schemas, with a real registry: what the sink writes, upserts and deletions of any key included, the source reads
// back, with the types of the columns.
func TestFormatsRoundTrip(t *testing.T) {
	s := &record.Schema{Dataset: "orders", Key: []int{0}, Columns: arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64},
		{Name: "note", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "ok", Type: arrow.FixedWidthTypes.Boolean, Nullable: true},
		{Name: "at", Type: &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}, Nullable: true},
	}, nil)}
	batch := connectortest.Changes(s,
		connectortest.Change{Op: record.Insert, Row: []string{"1", `"a"`, "true", `"2026-01-31T12:00:00.000001Z"`}},
		connectortest.Change{Op: record.Update, Row: []string{"1", "null", "false", "null"}},
		connectortest.Change{Op: record.Delete, Row: []string{"1", "null", "null", "null"}},
		connectortest.Change{Op: record.Insert, Row: []string{"-9", `"ü"`, "null", `"1969-12-31T23:59:59.999999Z"`}})
	for _, format := range formats.Names() {
		if format == "raw" {
			continue
		}
		t.Run(format, func(t *testing.T) {
			prefix := kafkatest.Prefix(t)
			options := []string{"format", format, "registry", kafkatest.Registry(t)}
			cfg := sinkConfig(t, prefix, append(options, "partitions", "1")...)
			contract, err := cfg.Contract()
			if only := []string{"protobuf", "debezium-protobuf", "debezium-json-schema"}; slices.Contains(only, format) {
				if connector.ClassOf(err) != connector.ClassConfig {
					t.Errorf("a format that is only read gave %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			mode, keyed := connector.Append, "false"
			if slices.Contains(contract.Modes, connector.Upsert) {
				mode, keyed = connector.Upsert, "true"
			}
			w := startSink(t, cfg, sinkStart(1, mode))
			w.write(batch)
			w.commit(1)
			written := records(t, prefix+"orders") // once the end of the transaction is everywhere
			r := start(t, sourceConfig(t, prefix+"orders", append(options, "keyed", keyed, "metadata", everyPart)...), record.Position{})
			last := map[int64]string{}
			n := 0
			for n < 4 {
				b, err := r.next(100)
				if err != nil {
					t.Fatal(err)
				}
				for _, reject := range b.Rejects {
					t.Error(reject.Error())
				}
				for i := range b.NumRows() {
					ids, ok := b.Rows.Column(b.Schema.Column("id")).(interface{ Value(i int) int64 })
					if !ok {
						t.Fatalf("column id is %s", b.Schema.Columns)
					}
					if row := string(b.RowJSON(i)); !slices.ContainsFunc(written, func(r *kgo.Record) bool { return strings.HasSuffix(row, metadataOf(r)) }) {
						t.Errorf("no message has the metadata of %s", row)
					}
					last[ids.Value(i)] = b.Op(i).String() + " " + string(b.RowJSON(i))
				}
				n += b.NumRows()
			}
			if len(last) != 2 || last[1][:6] != "delete" || last[-9][:6] == "delete" {
				t.Errorf("the rows are %v", last)
			}
		})
	}
}

// A registry that wants TLS with a certificate of its reader: with the files sink and source reach it; without them the error says so.
func TestRegistryTLS(t *testing.T) {
	files := t.TempDir()
	ca, cert, key := filepath.Join(files, "ca.pem"), filepath.Join(files, "client.pem"), filepath.Join(files, "client.key")
	behind, err := url.Parse(kafkatest.Registry(t))
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(httputil.NewSingleHostReverseProxy(behind))
	srv.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: selfSigned(t, cert, key), MinVersion: tls.VersionTLS12}
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	srv.StartTLS()
	defer srv.Close()
	writePEM(t, ca, "CERTIFICATE", srv.Certificate().Raw)

	prefix := kafkatest.Prefix(t)
	options := []string{"format", "avro", "registry", srv.URL, "registry_ca", ca, "registry_cert", cert, "registry_key", key}
	w := startSink(t, sinkConfig(t, prefix, options...), sinkStart(1, connector.Append))
	w.write(connectortest.Numbered("orders", 1, 3))
	w.commit(1)
	want := len(records(t, prefix+"orders")) // once the end of the transaction is everywhere
	if rows, _ := start(t, sourceConfig(t, prefix+"orders", options...), record.Position{}).all(-1); want != 3 || len(rows) != want {
		t.Errorf("%d rows came of %d, want 3", len(rows), want)
	}
	for what, options := range map[string][]string{
		"certificate signed by unknown authority": {"format", "avro", "registry", srv.URL},
		"certificate required":                    {"format", "avro", "registry", srv.URL, "registry_ca", ca},
	} {
		r := open(t, sourceConfig(t, prefix+"orders", options...))
		if err := r.Start(t.Context(), request(record.Position{})); err == nil || !strings.Contains(err.Error(), what) ||
			!strings.Contains(err.Error(), srv.URL) {
			t.Errorf("the error is %v: want one that names the registry, and says %s", err, what)
		}
	}
	for _, options := range [][]string{
		{"format", "avro", "registry", srv.URL, "registry_cert", cert},
		{"format", "avro", "registry", srv.URL, "registry_ca", filepath.Join(files, "none.pem")},
		{"format", "avro", "registry", srv.URL, "registry_ca", key},
	} {
		if _, err := sourceConfig(t, prefix+"orders", options...).Open(connectortest.Env(t)); connector.ClassOf(err) != connector.ClassConfig ||
			!strings.Contains(err.Error(), "registry_c") {
			t.Errorf("options %q gave %v: want an error that names the option", options, err)
		}
	}
}

// selfSigned writes a certificate and its key, and returns a pool with it.
func selfSigned(t testing.TB, cert, key string) *x509.CertPool {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "leat"}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, cert, "CERTIFICATE", der)
	writePEM(t, key, "PRIVATE KEY", secret)
	pool := x509.NewCertPool()
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(parsed)
	return pool
}

func writePEM(t testing.TB, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
