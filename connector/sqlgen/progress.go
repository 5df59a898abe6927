package sqlgen

import (
	"encoding/json"
	"fmt"

	"github.com/leatdata/leat/record"
)

// EncodeProgress returns the JSON form of a lane's progress, in which the position and the ledger stand byte for byte: so they come back
// from json.Unmarshal. It is an error where one of them is no JSON.
func EncodeProgress(p record.Progress) ([]byte, error) {
	out := record.AppendJSONString([]byte(`{"run":`), p.Run)
	out = fmt.Appendf(out, `,"position":{"shape":%d`, p.Position.Shape)
	for _, doc := range []json.RawMessage{p.Position.Data, p.Ledger} {
		if len(doc) > 0 && !json.Valid(doc) {
			return nil, fmt.Errorf("encoding the progress: %.100q is no JSON", doc)
		}
	}
	if len(p.Position.Data) > 0 {
		out = append(append(out, `,"data":`...), p.Position.Data...)
	}
	out = append(out, '}')
	if len(p.Ledger) > 0 {
		out = append(append(out, `,"ledger":`...), p.Ledger...)
	}
	if p.Done {
		out = append(out, `,"done":true`...)
	}
	return append(out, '}'), nil
}
