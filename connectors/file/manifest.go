package file

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/leatdata/leat/record"
)

// manifestFormat is the number of the persisted form, of manifests and of prepared epochs; docs/formats/change-log.md describes it.
// Manifests of format 1 are read, too: they have no number of their commit, and the progress in them no epoch and no item.
const manifestFormat = 2

// manifest is all that is committed of one lane's log: writing it is the commit.
type manifest struct {
	Format   int              `json:"format"`
	Pipeline string           `json:"pipeline"`
	Lane     string           `json:"lane"`
	Fence    uint64           `json:"fence"`  // the highest owner seen
	Kind     string           `json:"kind"`   // jsonl, parquet, debezium
	Commit   int64            `json:"commit"` // its number; 0: nothing is committed
	Seq      int64            `json:"seq"`    // the number of the last change
	Lists    int              `json:"lists"`  // closed lists of files: older than those in Files
	Progress *record.Progress `json:"progress"`
	Datasets []logDataset     `json:"datasets"`
	Files    []logEntry       `json:"files"`
}

// logDataset is a dataset of a log.
type logDataset struct {
	Name   string `json:"name"`
	Folder string `json:"folder"` // within the log's folder
	Files  int64  `json:"files"`  // how many there are: the number of the last one
}

// logEntry is a file of a log.
type logEntry struct {
	File   string          `json:"file"` // within the log's folder, with slashes
	Seq    int64           `json:"seq"`  // the number of its first change
	Rows   int64           `json:"rows"`
	Bytes  int64           `json:"bytes"`
	SHA256 string          `json:"sha256"`
	First  json.RawMessage `json:"first,omitempty"` // positions of the first and the last transaction; absent: rows that were read
	Last   json.RawMessage `json:"last,omitempty"`
	Staged string          `json:"staged,omitempty"` // its name before it gets its own, in the same folder; empty: it has its own
}

// encode returns the manifest as a JSON document that a person can read, a file on each line. What is opaque in the progress is kept
// byte for byte.
func (m *manifest) encode() ([]byte, error) {
	b := fmt.Appendf(nil, `{"format":%d,"pipeline":`, m.Format)
	b = record.AppendJSONString(b, m.Pipeline)
	b = record.AppendJSONString(append(b, `,"lane":`...), m.Lane)
	b = fmt.Appendf(b, `,"fence":%d,"kind":`, m.Fence)
	b = record.AppendJSONString(b, m.Kind)
	b = fmt.Appendf(b, ",\"commit\":%d,\"seq\":%d,\"lists\":%d,\n\"progress\":", m.Commit, m.Seq, m.Lists)
	b, err := appendProgress(b, m.Progress)
	if err != nil {
		return nil, err
	}
	if b, err = appendLines(append(b, ",\n\"datasets\":["...), m.Datasets, ","); err != nil {
		return nil, err
	}
	if b, err = appendLines(append(b, "],\n\"files\":["...), m.Files, ","); err != nil {
		return nil, err
	}
	return append(b, "]}\n"...), nil
}

// appendLines appends each element as JSON in front of a line of its own.
func appendLines[T any](b []byte, list []T, between string) ([]byte, error) {
	for i, v := range list {
		if i > 0 {
			b = append(b, between...)
		}
		var line bytes.Buffer
		enc := json.NewEncoder(&line)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(v); err != nil {
			return nil, fmt.Errorf("encoding the manifest: %w", err)
		}
		b = append(append(b, '\n'), bytes.TrimSuffix(line.Bytes(), []byte("\n"))...)
	}
	return b, nil
}

func appendProgress(b []byte, p *record.Progress) ([]byte, error) {
	if p == nil {
		return append(b, "null"...), nil
	}
	return p.Append(b)
}

// decodeManifest reads what encode wrote, in every format so far, and nothing else.
func decodeManifest(data []byte) (*manifest, error) {
	m := &manifest{}
	if err := decodeStrictly(data, m, 1); err != nil {
		return nil, err
	}
	m.Format = manifestFormat // as it is written from now on
	return m, nil
}

// decodeStrictly reads a document whose format is from the given one to the newest, and which has no unknown field.
func decodeStrictly(data []byte, into any, from int) error {
	var head struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return fmt.Errorf("it is damaged: %w", err)
	}
	if head.Format < from || head.Format > manifestFormat {
		return fmt.Errorf("its format is %d, and this program knows %d to %d", head.Format, from, manifestFormat)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("it is damaged: %w", err)
	}
	return nil
}

// encodeList returns a closed list: a line for each file.
func encodeList(files []logEntry) ([]byte, error) {
	b, err := appendLines(nil, files, "")
	if err != nil || len(b) == 0 {
		return b, err
	}
	return append(b[1:], '\n'), nil
}
