package kafka_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/connectors/kafka"
)

func TestURL(t *testing.T) {
	cfg, _ := kafka.NewSource().(*kafka.SourceConfig)
	err := cfg.SetURL("kafkas://us%40er:p%2Fw%40d@one,two:9093,[::1]:9094/shop.orders,shop.*?follow=true&types=id:int64,total:decimal(12,2)")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"one:9092", "two:9093", "[::1]:9094"}; !slices.Equal(cfg.Brokers, want) {
		t.Errorf("brokers are %q, want %q", cfg.Brokers, want)
	}
	if cfg.User != "us@er" || cfg.Password.Reveal() != "p/w@d" || !cfg.TLS || !cfg.Follow || cfg.Types["total"] != "decimal(12,2)" {
		t.Errorf("the configuration is %+v", cfg)
	}
	if want := []string{"shop.orders", "shop.*"}; !slices.Equal(cfg.Topics, want) {
		t.Errorf("topics are %q, want %q", cfg.Topics, want)
	}
	if _, err := cfg.Contract(); err != nil {
		t.Error(err)
	}
	for _, raw := range []string{
		"kafka://user:s3cret@/orders", "kafka://u:s3cret@host/t?folow=true", "http://u:s3cret@host/t",
	} {
		other, _ := kafka.NewSource().(*kafka.SourceConfig)
		err := other.SetURL(raw)
		if connector.ClassOf(err) != connector.ClassConfig || strings.Contains(err.Error()+connector.HintOf(err), "s3cret") {
			t.Errorf("%s gave %v", raw, err)
		}
	}
}

// What can't be meant is refused before anything is asked.
func TestRefusedOptions(t *testing.T) {
	for _, query := range []string{
		"sasl=oauth", "sasl=oauth&token=x&token_file=y", "token=x", "sasl=plain", "tls_ca=x", "from=yesterday", "from=group", "refresh=0s",
		"follow=true&incremental=true", "format=avro", "format=avro&registry=nowhere", "tls=true&tls_cert=x", "timeout=0s",
	} {
		cfg, _ := kafka.NewSource().(*kafka.SourceConfig)
		if err := cfg.SetURL("kafka://host/topic?" + query); err != nil {
			t.Errorf("%s: %v", query, err)
		}
		if _, err := cfg.Contract(); connector.ClassOf(err) != connector.ClassConfig || connector.HintOf(err) == "" {
			t.Errorf("%s gave %v", query, err)
		}
	}
	for _, query := range []string{
		"topic={nonsense}", "partitions=-1", "position_topic=a/b", "transaction_timeout=1ms", "format=protobuf&registry=http://host", "linger=-1s",
	} {
		cfg, _ := kafka.NewSink().(*kafka.SinkConfig)
		if err := cfg.SetURL("kafka://host/?" + query); err != nil {
			t.Errorf("%s: %v", query, err)
		}
		if _, err := cfg.Contract(); connector.ClassOf(err) != connector.ClassConfig || connector.HintOf(err) == "" {
			t.Errorf("%s gave %v", query, err)
		}
	}
}
