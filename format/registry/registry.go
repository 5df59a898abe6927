package registry

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/leatdata/leat/format/internal/plain"
)

// Kind is the language of a schema.
type Kind string

// The languages.
const (
	Avro     Kind = "AVRO"
	Protobuf Kind = "PROTOBUF"
	JSON     Kind = "JSON"
)

// Strategy says under which subject the schemas of a topic are registered.
type Strategy string

// The strategies.
const (
	TopicName       Strategy = "topic"        // TOPIC-key and TOPIC-value
	RecordName      Strategy = "record"       // the full name of the record
	TopicRecordName Strategy = "topic-record" // TOPIC-NAME
)

// Options say where a registry is, and how it is used.
type Options struct {
	URL      string // several are divided by commas
	User     string
	Password string
	Token    string // a bearer token, instead of user and password
	TLS      *tls.Config
	Timeout  time.Duration // of one call; 0: 10 s
	Strategy Strategy      // empty: TopicName
	// Registered says that schemas of what is written have to be there already; otherwise they are registered.
	Registered bool
}

// Client asks a registry. It may be used concurrently.
type Client struct {
	cl   *sr.Client
	o    Options
	name string // of the registry, for messages

	mu    sync.Mutex
	known map[Ref]*Schema
	ids   map[string]int // subject and text -> id of what was registered
}

// Schema is a registered schema, with those that it refers to.
type Schema struct {
	ID   int
	Kind Kind
	Text string
	Refs []Reference // in such an order that each comes behind those that it refers to
}

// Reference is a schema that another one refers to by a name.
type Reference struct {
	Name string
	Text string
}

// New returns a client; nothing is asked yet.
func New(o Options) (*Client, error) {
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	var urls, shown []string
	for raw := range strings.SplitSeq(o.URL, ",") {
		u, err := url.Parse(strings.TrimSpace(raw))
		if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
			return nil, errors.New("the address of the schema registry is no URL: want registry=http://host:8081")
		}
		if u.User != nil {
			o.User = u.User.Username()
			o.Password, _ = u.User.Password()
			u.User = nil
		}
		urls, shown = append(urls, u.String()), append(shown, u.Redacted())
	}
	switch o.Strategy {
	case "":
		o.Strategy = TopicName
	case TopicName, RecordName, TopicRecordName:
	default:
		return nil, fmt.Errorf("unknown naming of subjects %q: want topic, record or topic-record", o.Strategy)
	}
	opts := []sr.ClientOpt{sr.URLs(urls...), sr.UserAgent("leat")}
	if o.User != "" {
		opts = append(opts, sr.BasicAuth(o.User, o.Password))
	}
	if o.Token != "" {
		opts = append(opts, sr.BearerToken(o.Token))
	}
	if o.TLS != nil {
		opts = append(opts, sr.DialTLSConfig(o.TLS))
	}
	cl, err := sr.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("schema registry %s: %w", strings.Join(shown, ","), err)
	}
	return &Client{cl: cl, o: o, name: strings.Join(shown, ","), known: map[Ref]*Schema{}, ids: map[string]int{}}, nil
}

// call gives a context a time limit.
func (c *Client) call(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.o.Timeout)
}

// Statuses of HTTP, of which this package uses no client itself.
const (
	unauthorized = 401
	forbidden    = 403
	notFound     = 404
	conflict     = 409
	tooMany      = 429
	serverErrors = 500
)

// fail makes an error of the registry readable. What the registry itself said is final; that it could not be asked may pass.
func (c *Client) fail(what string, err error) error {
	var re *sr.ResponseError
	if errors.As(err, &re) && re.StatusCode < serverErrors && re.StatusCode != tooMany {
		if re.StatusCode == unauthorized || re.StatusCode == forbidden {
			return fmt.Errorf("%w: %s: %s: %s (status %d): check user and password of the registry",
				plain.ErrRegistry, c.name, what, re.Message, re.StatusCode)
		}
		return fmt.Errorf("schema registry %s: %s: %s (status %d, code %d)", c.name, what, re.Message, re.StatusCode, re.ErrorCode)
	}
	return fmt.Errorf("%w: %s: %s: %w", plain.ErrRegistry, c.name, what, err)
}

// Find returns the schema that a message names.
func (c *Client) Find(ctx context.Context, ref Ref) (*Schema, error) {
	c.mu.Lock()
	s := c.known[ref]
	c.mu.Unlock()
	if s != nil {
		return s, nil
	}
	ctx, cancel := c.call(ctx)
	defer cancel()
	var found sr.Schema
	var err error
	if ref.GUID != "" {
		var byGUID sr.SubjectSchema
		byGUID, err = c.cl.SchemaByGUID(ctx, ref.GUID)
		found = byGUID.Schema
	} else {
		found, err = c.cl.SchemaByID(ctx, ref.ID)
	}
	if err != nil {
		return nil, c.fail("schema "+ref.String(), err)
	}
	if s, err = c.resolve(ctx, ref.ID, found); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if other := c.known[ref]; other != nil {
		return other, nil
	}
	c.known[ref] = s
	return s, nil
}

// maxReferences bounds how many schemas one may refer to, others' references included.
const maxReferences = 1_000

// resolve finds what a schema refers to.
func (c *Client) resolve(ctx context.Context, id int, found sr.Schema) (*Schema, error) {
	s := &Schema{ID: id, Kind: Kind(found.Type.String()), Text: found.Schema}
	seen := map[string]bool{}
	var add func(refs []sr.SchemaReference) error
	add = func(refs []sr.SchemaReference) error {
		for _, r := range refs {
			if seen[r.Name] {
				continue
			}
			seen[r.Name] = true
			if len(seen) > maxReferences {
				return fmt.Errorf("schema %d refers to more than %d others", id, maxReferences)
			}
			one, err := c.cl.SchemaByVersion(ctx, r.Subject, r.Version)
			if err != nil {
				return c.fail(fmt.Sprintf("version %d of subject %s, which schema %d refers to", r.Version, r.Subject, id), err)
			}
			if err := add(one.References); err != nil {
				return err
			}
			s.Refs = append(s.Refs, Reference{r.Name, one.Schema.Schema})
		}
		return nil
	}
	return s, add(found.References)
}

// Subject is the subject of the keys, or values, of a topic; record is the full name of the record.
func (c *Client) Subject(topic string, key bool, record string) string {
	switch c.o.Strategy {
	case RecordName:
		return record
	case TopicRecordName:
		return topic + "-" + record
	default:
		if key {
			return topic + "-key"
		}
		return topic + "-value"
	}
}

// Newest returns the newest schema of the keys, or values, of a topic; nil: there is none, or its subject has another name.
func (c *Client) Newest(ctx context.Context, topic string, key bool) (*Schema, error) {
	if c.o.Strategy != TopicName {
		return nil, nil //nolint:nilnil // it is not known
	}
	ctx, cancel := c.call(ctx)
	defer cancel()
	subject := c.Subject(topic, key, "")
	found, err := c.cl.SchemaByVersion(ctx, subject, -1)
	var re *sr.ResponseError
	if errors.As(err, &re) && re.StatusCode == notFound {
		return nil, nil //nolint:nilnil // there is none
	}
	if err != nil {
		return nil, c.fail("subject "+subject, err)
	}
	s, err := c.resolve(ctx, found.ID, found.Schema)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if other := c.known[Ref{ID: found.ID}]; other != nil {
		return other, nil
	}
	c.known[Ref{ID: found.ID}] = s
	return s, nil
}

// Register returns the id of a schema of a subject: it registers the schema, or finds it where Options.Registered says so.
func (c *Client) Register(ctx context.Context, subject string, kind Kind, text string) (int, error) {
	c.mu.Lock()
	id, ok := c.ids[subject+"\x00"+text]
	c.mu.Unlock()
	if ok {
		return id, nil
	}
	ctx, cancel := c.call(ctx)
	defer cancel()
	schema := sr.Schema{Schema: text}
	if err := schema.Type.UnmarshalText([]byte(kind)); err != nil {
		return 0, fmt.Errorf("schema registry: %w", err)
	}
	var found sr.SubjectSchema
	var err error
	if c.o.Registered {
		found, err = c.cl.LookupSchema(ctx, subject, schema)
	} else {
		found, err = c.cl.CreateSchema(ctx, subject, schema)
	}
	var re *sr.ResponseError
	switch {
	case err == nil:
	case errors.As(err, &re) && re.StatusCode == notFound && c.o.Registered:
		return 0, fmt.Errorf("schema registry %s: subject %s has no schema like the one that is to be written: register it first, "+
			"or leave out the option that keeps leat from doing so; it is %s", c.name, subject, text)
	case errors.As(err, &re) && re.StatusCode == conflict:
		return 0, fmt.Errorf("schema registry %s: subject %s: the schema is not compatible with those that are registered: %s; "+
			"write to another topic, or allow it: "+
			"curl -X PUT %s/config/%s -H 'Content-Type: application/json' -d '{\"compatibility\":\"NONE\"}'",
			c.name, subject, re.Message, c.name, url.PathEscape(subject))
	default:
		return 0, c.fail("registering a schema of subject "+subject, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ids[subject+"\x00"+text] = found.ID
	return found.ID, nil
}

// Failed reports whether an error of decoding, encoding or learning is one of a registry that may pass.
func Failed(err error) bool { return errors.Is(err, plain.ErrRegistry) }
