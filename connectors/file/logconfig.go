package file

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/leatdata/leat/connector"
)

// logKind is the format of a log: as is said, or as the name says, else JSON Lines.
func (c *SinkConfig) logKind() string {
	if f := c.format(c.Path); f != "" {
		return f
	}
	return formatJSONL
}

// logCompression is how the files of a log are compressed; auto: as the format does by itself.
func (c *SinkConfig) logCompression() string {
	if c.Compression == "" {
		return compressAuto
	}
	return c.Compression
}

// logInstead is how the same place is written as a log.
func (c *SinkConfig) logInstead() string {
	path := filepath.Clean(c.Path)
	base, _, _ := named(path)
	option := "log=true"
	if f := c.format(c.Path); f == formatParquet {
		option += "&format=" + f
	}
	return "file:" + filepath.Join(filepath.Dir(path), base) + "/?" + option
}

func (c *SinkConfig) logContract() connector.SinkContract {
	return connector.SinkContract{
		Modes: []connector.WriteMode{connector.Append}, Input: connector.Changelog, Atomicity: connector.TwoPhaseCommit,
		Durable: true, Keyless: true, Every: c.Every, Bytes: c.FileBytes,
	}
}

func (c *SinkConfig) validateLog() error {
	kind := c.logKind()
	switch {
	case c.Path == "":
		return configError(errors.New("no folder is named"), "write it as file:FOLDER/?log=true")
	case c.std():
		return configError(errors.New("a log is a folder, and can't be standard output"), "write it as file:FOLDER/?log=true")
	case !slices.Contains([]string{formatJSONL, formatParquet, formatDebezium}, kind):
		return configError(fmt.Errorf("a log can't be kept as %s", kind), "say format=jsonl, parquet or debezium")
	case c.Every < 0:
		return configError(fmt.Errorf("every=%s is no time to collect", c.Every), "say every=10s")
	case c.FileBytes <= 0:
		return configError(fmt.Errorf("file_bytes=%d: a file has at least one byte", c.FileBytes), "say file_bytes=134217728")
	}
	return nil
}

// Check implements connector.Checker: may files be made in the folder, and is the log in it whole.
func (s *logSink) Check(context.Context) ([]connector.Probe, error) {
	probes := checkFolder(s.root, true)
	if probes[0].Status != connector.Pass {
		return probes, nil
	}
	_, found, err := s.fs.Stat(s.path(""))
	var manifests []foundManifest
	if err == nil && found {
		manifests, err = readManifests(s.fs, s.root, "")
	}
	switch {
	case err != nil:
		return append(probes, failed("log", err)), nil
	case len(manifests) == 0:
		return append(probes, connector.Probe{Name: "log", Detail: "it is new"}), nil
	}
	for _, o := range manifests {
		probes = append(probes, connector.Probe{Name: "log", Detail: fmt.Sprintf(
			"pipeline %q, lane %q: %d changes of %d datasets as %s", o.m.Pipeline, o.m.Lane, o.m.Seq, len(o.m.Datasets), o.m.Kind)})
	}
	return probes, nil
}
