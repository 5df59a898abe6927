// Package config reads pipeline files: YAML with positions, secrets from the environment and from files, strict names and types,
// and every mistake reported at once with its line, its column and the nearest right name. [Parse] makes a [Pipeline], whose parts
// are the connectors' own typed configurations; [JSONSchema] describes the same form for editors.
//
// Nothing here touches a connector's system: a file that parses may still not run. The plan's admission and checks are the
// engine's.
package config
