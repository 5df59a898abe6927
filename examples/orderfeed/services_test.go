package orderfeed_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// services are a feed and a ledger on one HTTP server.
type services struct {
	*httptest.Server

	mu       sync.Mutex
	feed     []string // line n has number n+1
	kept     int      // lines up to this number are gone
	rows     []string
	progress map[string]string // by lane
	fences   map[string]uint64
	faults   *rand.Rand // nil: all goes well
	early    []string   // what was released too early
}

const token = "a secret of the shop"

func startServices(lines ...string) *services {
	s := &services{feed: lines, progress: map[string]string{}, fences: map[string]uint64{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /feed", s.page)
	mux.HandleFunc("DELETE /feed", s.release)
	mux.HandleFunc("GET /ledger/{lane}", s.how)
	mux.HandleFunc("PUT /ledger/{lane}", s.put)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if r.Header.Get("Authorization") != "Bearer "+token {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		if s.faults == nil {
			mux.ServeHTTP(w, r)
			return
		}
		switch s.faults.IntN(12) {
		case 0: // it never gets there
			panic(http.ErrAbortHandler)
		case 1: // its answer gets lost
			mux.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		case 2:
			http.Error(w, "busy", http.StatusServiceUnavailable)
		default:
			mux.ServeHTTP(w, r)
		}
	}))
	return s
}

func number(r *http.Request, name string) int {
	n, err := strconv.Atoi(r.URL.Query().Get(name))
	if err != nil {
		panic(err)
	}
	return n
}

func (s *services) page(w http.ResponseWriter, r *http.Request) {
	after, limit := number(r, "after"), number(r, "limit")
	if after < s.kept {
		http.Error(w, fmt.Sprintf("lines up to %d are gone", s.kept), http.StatusGone)
		return
	}
	w.Header().Set("Feed-End", strconv.Itoa(len(s.feed)))
	for _, line := range s.feed[min(after, len(s.feed)):min(after+limit, len(s.feed))] {
		_, _ = io.WriteString(w, line+"\n")
	}
}

func (s *services) release(_ http.ResponseWriter, r *http.Request) {
	upto := number(r, "upto")
	if upto > len(s.rows) {
		s.early = append(s.early, fmt.Sprintf("%d lines were released, and the ledger has %d", upto, len(s.rows)))
	}
}

// owned reports whether the sender is the newest one.
func (s *services) owned(w http.ResponseWriter, r *http.Request) bool {
	lane, fence := r.PathValue("lane"), uint64(number(r, "fence"))
	if fence < s.fences[lane] {
		http.Error(w, "an owner with a higher fence was here", http.StatusConflict)
		return false
	}
	s.fences[lane] = fence
	return true
}

func (s *services) how(w http.ResponseWriter, r *http.Request) {
	if !s.owned(w, r) {
		return
	}
	if p := s.progress[r.PathValue("lane")]; p != "" {
		_, _ = io.WriteString(w, p)
		return
	}
	_, _ = io.WriteString(w, "{}")
}

func (s *services) put(w http.ResponseWriter, r *http.Request) {
	if !s.owned(w, r) {
		return
	}
	body := bufio.NewScanner(r.Body)
	body.Buffer(nil, 64<<20)
	var lines []string
	for body.Scan() {
		lines = append(lines, body.Text())
	}
	if body.Err() != nil || len(lines) == 0 {
		http.Error(w, "half a batch", http.StatusBadRequest)
		return
	}
	s.progress[r.PathValue("lane")] = lines[0]
	s.rows = append(s.rows, lines[1:]...)
}

// orders are the numbers of the rows in the ledger.
func (s *services) orders() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []int64
	for _, row := range s.rows {
		var doc struct {
			Row struct {
				Number int64 `json:"number"`
			} `json:"row"`
		}
		if err := json.Unmarshal([]byte(row), &doc); err != nil {
			panic(err)
		}
		out = append(out, doc.Row.Number)
	}
	return out
}

// manyOrders are n lines of a feed.
func manyOrders(n int) []string {
	lines := make([]string, n)
	for i := range lines {
		note := "null"
		if i%3 == 0 {
			note = `"by hand"`
		}
		lines[i] = fmt.Sprintf(`{"number":%d,"customer":"c%d","total":%d.%02d,"placed":"2026-03-04T05:06:%02d.%06dZ","note":%s}`,
			i+1, i%7, i, i%100, i%60, i, note)
	}
	return lines
}

// ledgerRows are the rows of a dataset in the ledger.
func (s *services) ledgerRows(dataset string) (rows []string, exists bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range s.rows {
		var doc struct {
			Dataset string          `json:"dataset"`
			Row     json.RawMessage `json:"row"`
		}
		if err := json.Unmarshal([]byte(line), &doc); err != nil {
			panic(err)
		}
		if doc.Dataset == dataset {
			rows = append(rows, string(doc.Row))
		}
	}
	return rows, true
}

func (s *services) texts() string { return strings.Join(slices.Clone(s.rows), "\n") }
