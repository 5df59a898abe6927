// Command benthos is the engine of Redpanda Connect with its plain components. The distribution itself is in no registry of packages that
// the benchmarks install from.
package main

import (
	"context"

	_ "github.com/redpanda-data/benthos/v4/public/components/io"
	_ "github.com/redpanda-data/benthos/v4/public/components/pure"
	"github.com/redpanda-data/benthos/v4/public/service"
)

func main() { service.RunCLI(context.Background()) }
