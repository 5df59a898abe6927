// Package connectortest is the conformance kit: what every connector has to keep, as tests that run against the real system.
//
// [Source] and [Sink] prove the clauses that concern one connector, [ChangeStream] those of a sink that follows changes; [Cases] is
// one column of edge values for every type of the vocabulary; [Batch] and [Rows] build batches and print them for comparison;
// [Wrapped] proves that a decorator hides no capability. A connector's own test is a few lines:
//
//	func TestSource(t *testing.T) {
//		connectortest.Source(t, connectortest.SourceCase{
//			New:  func(t testing.TB) connector.SourceConfig { … over the same data each time … },
//			Want: map[string][]string{"orders": {`{"id":1}`, `{"id":2}`}},
//		})
//	}
//
// The kit imports nothing internal, so that connectors outside of this repository use it as well.
package connectortest
