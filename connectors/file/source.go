package file

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/leatdata/leat/connector"
	"github.com/leatdata/leat/format"
	"github.com/leatdata/leat/format/csv"
	"github.com/leatdata/leat/format/jsonl"
	"github.com/leatdata/leat/format/parquet"
	"github.com/leatdata/leat/record"
)

// source reads the files one after the other. Standard input is read by it as it is; [Source] adds what only real files can do.
type source struct {
	cfg *SourceConfig
	env connector.Env

	files     []entry
	filesJSON json.RawMessage
	sets      []*dataset
	streams   map[int]*opened // pipes and standard input, which can be opened only once
	selected  []string        // datasets to read; nil: all
	cuts      []place
	started   bool
	ended     error // what Read returns from now on

	set     int // the dataset that is read
	nth     int // its file that is read
	told    bool
	r       format.Reader
	o       *opened
	counted int64 // stored bytes that batches were made of so far
	unsaved int64 // bytes since the last position
	held    *record.Batch
}

// Source is a source of files on a disk.
type Source struct{ *source }

var (
	_ connector.Source     = (*source)(nil)
	_ connector.Discoverer = (*source)(nil)
	_ connector.Checker    = (*source)(nil)
	_ connector.Named      = (*source)(nil)
	_ connector.Positions  = (*Source)(nil)
	_ connector.Originator = (*Source)(nil)
)

// freeze fixes the list of files, in the order in which they are read.
func (s *source) freeze(list []entry) error {
	sets, err := s.cfg.datasets(list)
	if err != nil {
		return err
	}
	s.files, s.sets = nil, sets
	for _, d := range sets {
		for n, i := range d.files {
			d.files[n] = len(s.files)
			s.files = append(s.files, list[i])
		}
	}
	if s.filesJSON, err = json.Marshal(s.files); err != nil {
		return fmt.Errorf("encoding the list of files: %w", err)
	}
	return nil
}

// ensure freezes the list and finds the columns, once.
func (s *source) ensure(ctx context.Context) error {
	if s.files == nil {
		list, err := s.cfg.list()
		if err != nil {
			return err
		}
		if err := s.freeze(list); err != nil {
			return err
		}
	}
	for _, d := range s.sets {
		if d.schema != nil || (s.selected != nil && !slices.Contains(s.selected, d.name)) {
			continue
		}
		if err := s.prepare(ctx, d); err != nil {
			return err
		}
	}
	if s.selected == nil {
		return s.unknownTypes()
	}
	return nil
}

// Discover implements connector.Discoverer: it looks at the beginning of the files, or all of them, to find columns and types.
func (s *source) Discover(ctx context.Context) ([]connector.Dataset, error) {
	if err := s.ensure(ctx); err != nil {
		return nil, err
	}
	out := make([]connector.Dataset, len(s.sets))
	for i, d := range s.sets {
		out[i] = connector.Dataset{Name: d.name, Schema: d.schema, Rows: d.rows, Bytes: s.stored(d), Patch: map[string]string{}}
		if s.cfg.Datasets == "per_file" {
			out[i].Patch["only"] = d.name
		}
		if s.files[d.files[0]].stream() {
			out[i].Bytes = -1
		}
	}
	return out, nil
}

// ResolveOrigin implements connector.Originator: the position in front of the first row of the frozen list.
func (s *Source) ResolveOrigin(context.Context) (record.Position, error) {
	if s.files == nil {
		list, err := s.cfg.list()
		if err != nil {
			return record.Position{}, err
		}
		if err := s.freeze(list); err != nil {
			return record.Position{}, err
		}
	}
	return encodePosition(s.filesJSON, place{})
}

// Compare implements connector.Positions.
func (*Source) Compare(a, b record.Position) (order int, ok bool) { return comparePositions(a, b) }

// Migrate implements connector.Positions.
func (*Source) Migrate(p record.Position) (record.Position, error) {
	_, err := decodePosition(p)
	return p, err
}

// Start implements connector.Source.
func (s *source) Start(ctx context.Context, start connector.SourceStart) error {
	if err := start.Validate(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("starting to read files: %w", err)
	}
	var at place
	if !start.From.Position.Zero() {
		p, err := s.restore(start.From)
		if err != nil {
			return err
		}
		at = p.At
	}
	if len(start.Datasets) > 0 {
		s.selected = start.Datasets
	}
	if err := s.ensure(ctx); err != nil {
		return err
	}
	for _, c := range start.Cuts {
		if p, err := decodePosition(c); err == nil && slices.Equal(p.Files, s.files) {
			s.cuts = append(s.cuts, p.At)
		}
	}
	s.started = true
	return s.seek(at)
}

// restore takes the list of files from a position; every one must be as it was. A pipe can only be begun.
func (s *source) restore(from connector.From) (position, error) {
	p, err := decodePosition(from.Position)
	if err != nil {
		return p, err
	}
	if s.cfg.std() {
		return p, positionError("file.position", "standard input can't be read again")
	}
	for _, e := range p.Files {
		now, err := stat(e.Path)
		switch {
		case err != nil:
			return p, positionError("file.gone", "%s can't be read any more: %w", e.Path, err)
		case e.stream() && now.stream() && from.Origin != connector.Resume:
		case e.stream() || now.stream():
			return p, positionError("file.stream", "%s is a pipe or a device, which can't be read again", e.Path)
		case now != e:
			return p, positionError("file.changed", "%s changed: it had %d bytes and has %d, or was written to", e.Path, e.Size, now.Size)
		}
	}
	if slices.Equal(p.Files, s.files) {
		return p, nil
	}
	if err := s.freeze(p.Files); err != nil {
		return p, err
	}
	if !slices.Equal(p.Files, s.files) {
		return p, positionError("file.position", "the position is of other datasets than the configuration selects")
	}
	return p, nil
}

// seek goes to a place of the list.
func (s *source) seek(at place) error {
	for s.set = range s.sets {
		d := s.sets[s.set]
		if s.nth = slices.Index(d.files, at.File); s.nth < 0 {
			continue
		}
		if at.Rows == 0 || !s.wanted(d) {
			return nil
		}
		var err error
		if d.schema, err = withLate(d.schema, at); err != nil {
			return err
		}
		s.told = true
		return s.openAt(d, at.Offset)
	}
	s.set, s.nth = len(s.sets), 0
	return nil
}

func (s *source) wanted(d *dataset) bool {
	return s.selected == nil || slices.Contains(s.selected, d.name)
}

// openAt opens the current file behind an offset of it.
func (s *source) openAt(d *dataset, at format.Offset) error {
	i := d.files[s.nth]
	doing := "reading " + s.files[i].Path
	var err error
	if s.r, s.o, err = s.reader(d, i); err != nil {
		return err
	}
	if p, ok := s.o.text.(*replay); ok {
		p.keep = false
	}
	s.counted = 0
	if at.Rows == 0 {
		return nil
	}
	switch r := s.r.(type) {
	case *csv.Reader:
		err = r.Resume(at)
	case *jsonl.Reader:
		err = r.Resume(at)
	case format.Skipper:
		err = r.Skip(at.Rows)
	default:
		err = errors.New("the format can't be read from the middle")
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = positionError("file.changed", "%s has fewer rows than were read of it", s.files[i].Path)
	}
	s.counted = s.o.raw.n
	return wrap(err, doing)
}

// Read implements connector.Source.
func (s *source) Read(ctx context.Context, want connector.Limit) (*record.Batch, error) {
	switch {
	case s.ended != nil:
		return nil, s.ended
	case !s.started:
		return nil, errors.New("the source was not started")
	}
	b, err := s.read(ctx, want)
	if err != nil {
		s.ended = err
		s.shut()
		return nil, err
	}
	return b, nil
}

func (s *source) read(ctx context.Context, want connector.Limit) (*record.Batch, error) {
	if b := s.held; b != nil {
		s.held = nil
		return b, nil
	}
	for s.set < len(s.sets) {
		set := s.set
		b, err := s.step(ctx, want)
		if err != nil {
			return nil, err
		}
		if b == nil {
			continue
		}
		if want.Rows > 0 || b.NumRows() == 0 {
			return b, nil
		}
		return s.joined(ctx, set, b)
	}
	if s.unsaved > 0 { // the last batch had no position
		last := s.sets[len(s.sets)-1]
		s.unsaved = 0
		return s.positioned(&record.Batch{Schema: last.schema}, place{File: len(s.files)})
	}
	return nil, io.EOF
}

// maxJoined is how much memory a batch that must not be split may take: text columns of one have 32-bit offsets.
const maxJoined = 1 << 30

// joined reads on until the dataset ends or a cut stands there, and makes one batch of all.
func (s *source) joined(ctx context.Context, set int, first *record.Batch) (*record.Batch, error) {
	parts, size := []*record.Batch{first}, first.Bytes()
	for s.set == set && !s.atCut() && size < maxJoined {
		b, err := s.step(ctx, connector.Limit{})
		if err != nil {
			return nil, err
		}
		if b == nil {
			break
		}
		if b.Schema != first.Schema {
			s.held = b
			break
		}
		parts, size = append(parts, b), size+b.Bytes()
	}
	return join(parts)
}

// step returns the next batch of the current dataset; nil: it is finished, and the next one is the current one.
func (s *source) step(ctx context.Context, want connector.Limit) (*record.Batch, error) {
	d := s.sets[s.set]
	for s.wanted(d) {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("reading files: %w", err)
		}
		if s.nth == len(d.files) {
			if s.told {
				break
			}
			s.told = true
			return s.positioned(&record.Batch{Schema: d.schema}, place{File: d.files[s.nth-1] + 1})
		}
		if s.r == nil {
			if err := s.openAt(d, format.Offset{}); err != nil {
				return nil, err
			}
		}
		b, err := s.r.Next(s.wantOf(want))
		if errors.Is(err, io.EOF) {
			if err := s.finishFile(d); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, wrap(err, "reading "+s.files[d.files[s.nth]].Path)
		}
		return s.deliver(d, b)
	}
	s.set, s.nth, s.told = s.set+1, 0, false
	return nil, nil //nolint:nilnil // the dataset is finished
}

// wantOf bounds a read by the next cut.
func (s *source) wantOf(want connector.Limit) format.Want {
	w := format.Want{Rows: want.Rows, Bytes: want.Bytes}
	if w.Rows <= 0 {
		w.Rows = math.MaxInt
	}
	at := s.r.Offset().Rows
	for _, c := range s.cuts {
		if c.File == s.sets[s.set].files[s.nth] && c.Rows > at {
			w.Rows = min(w.Rows, int(c.Rows-at))
		}
	}
	return w
}

// atCut reports whether what was delivered ends at a cut.
func (s *source) atCut() bool {
	d := s.sets[s.set]
	for _, c := range s.cuts {
		switch {
		case s.nth == len(d.files):
			if c.File == d.files[s.nth-1]+1 && c.Rows == 0 {
				return true
			}
		case s.r != nil && c.File == d.files[s.nth] && c.Rows == s.r.Offset().Rows:
			return true
		}
	}
	return false
}

// deliver completes a batch of the current file.
func (s *source) deliver(d *dataset, b *record.Batch) (*record.Batch, error) {
	i := d.files[s.nth]
	e := s.files[i]
	switch d.format {
	case formatCSV:
	case formatJSONL:
		d.schema = b.Schema
	default:
		if err := d.project(b, e.Path); err != nil {
			return nil, err
		}
	}
	for n := range b.Rejects {
		b.Rejects[n].Dataset = d.name
		if len(s.files) > 1 {
			b.Rejects[n].Message = e.Path + ": " + b.Rejects[n].Message
		}
	}
	s.size(b, e)
	s.told = true
	at := place{File: i, Offset: s.r.Offset()}
	if at.Late = lateColumns(d.schema, d.base); at.Late != nil {
		at.Version = d.schema.Version
	}
	return s.positioned(b, at)
}

// size tells how many stored bytes a batch was made of.
func (s *source) size(b *record.Batch, e entry) {
	if p, ok := s.r.(*parquet.Reader); ok {
		if total := p.Rows(); total > 0 {
			b.Size = e.Size * int64(b.NumRows()) / total
		}
		return
	}
	if _, direct := s.o.text.(io.Seeker); direct && b.Size > 0 {
		return
	}
	b.Size = s.o.raw.n - s.counted
	s.counted = s.o.raw.n
}

// A list of files longer than this rides only on some batches, so that the bytes of positions stay a small part of the data.
const (
	smallList    = 16 << 10
	bytesPerList = 64
)

// positioned gives a batch its position. Where the list of files is long, batches in between have none.
func (s *source) positioned(b *record.Batch, at place) (*record.Batch, error) {
	if s.cfg.std() {
		return b, nil
	}
	s.unsaved += max(b.Size, 1)
	if b.Rows != nil && len(s.filesJSON) > smallList && s.unsaved < bytesPerList*int64(len(s.filesJSON)) && !s.cutAt(at) {
		return b, nil
	}
	p, err := encodePosition(s.filesJSON, at)
	if err != nil {
		return nil, err
	}
	b.Position, s.unsaved = p, 0
	return b, nil
}

func (s *source) cutAt(at place) bool {
	return slices.ContainsFunc(s.cuts, func(c place) bool { return c.File == at.File && c.Rows == at.Rows })
}

// finishFile closes the current file. One that changed while it was read is an error: its rows may be of both states.
func (s *source) finishFile(d *dataset) error {
	e := s.files[d.files[s.nth]]
	if r, ok := s.r.(*jsonl.Reader); ok && r.Duplicates() > 0 {
		s.env.Log.Warn("rows with equal keys: the last one counts", logPath(e.Path), logRows(r.Duplicates()))
	}
	s.shut()
	s.nth++
	if e.stream() {
		return nil
	}
	now, err := stat(e.Path)
	switch {
	case err != nil: // it was removed after it was read as a whole
		return nil //nolint:nilerr // its rows are complete
	case now.Size > e.Size:
		s.env.Log.Warn("the file grew while it was read: what was added is left for the next run", logPath(e.Path))
	case now != e:
		return &connector.Error{
			Class: connector.ClassPermanent, Code: "file.changed", Doing: "reading " + e.Path,
			Err: errors.New("it was written to while it was read"), Hint: "run again when nothing writes to the file",
		}
	}
	return nil
}

// shut closes the current file.
func (s *source) shut() {
	if s.r != nil {
		s.r.Close() //nolint:errcheck // it was only read
		s.r = nil
	}
	if s.o != nil {
		s.release(s.o)
		s.o = nil
	}
}

// open opens a file of the list. What can be opened only once is opened once, and read again from what was kept.
func (s *source) open(i int) (*opened, error) {
	e := s.files[i]
	if o := s.streams[i]; o != nil {
		p, _ := o.text.(*replay)
		p.at = 0
		return o, nil
	}
	s.env.Roundtrip("open")
	o, err := s.cfg.open(e)
	if err != nil || !e.stream() {
		return o, err
	}
	if s.streams == nil {
		s.streams = map[int]*opened{}
	}
	o.text = &replay{r: o.text, keep: true}
	s.streams[i] = o
	return o, nil
}

func (*source) release(o *opened) {
	if !o.entry.stream() {
		o.Close()
	}
}

// Close implements connector.Source.
func (s *source) Close(context.Context) error {
	s.shut()
	for _, o := range s.streams {
		o.Close()
	}
	s.streams = nil
	if s.ended == nil {
		s.ended = errors.New("the source is closed")
	}
	return nil
}

// URI implements connector.Named.
func (s *source) URI(string) string {
	if s.cfg.std() {
		return "file:///dev/stdin"
	}
	return connector.FileURI(s.cfg.Path, "")
}
