package sanity

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// facts holds all that a descriptor says about the wire and its JSON, one line for each thing, by name. Two
// descriptors agree if their facts are equal; it does not matter where a thing stands in its file.
type facts map[string]string

func factsOf(file protoreflect.FileDescriptor) facts {
	f := facts{
		"package": string(file.Package()),
		"syntax":  file.Syntax().String(),
	}
	for i := range file.Imports().Len() {
		f["import "+file.Imports().Get(i).Path()] = "imported"
	}
	f.messages(file.Messages())
	f.enums(file.Enums())
	for i := range file.Extensions().Len() {
		f.extension(file.Extensions().Get(i))
	}
	for i := range file.Services().Len() {
		f.service(file.Services().Get(i))
	}
	return f
}

func (f facts) messages(messages protoreflect.MessageDescriptors) {
	for i := range messages.Len() {
		m := messages.Get(i)
		f[fmt.Sprintf("message %s", m.FullName())] = fmt.Sprintf("map entry %t, %s", m.IsMapEntry(), options(m))
		for j := range m.Fields().Len() {
			f.field(m.Fields().Get(j))
		}
		for j := range m.Oneofs().Len() {
			o := m.Oneofs().Get(j)
			f[fmt.Sprintf("oneof %s", o.FullName())] = fmt.Sprintf("synthetic %t, %s", o.IsSynthetic(), options(o))
		}
		for j := range m.ReservedRanges().Len() {
			r := m.ReservedRanges().Get(j)
			for number := r[0]; number < r[1]; number++ {
				f[reservedKey(m.FullName(), int32(number))] = "reserved"
			}
		}
		for j := range m.ReservedNames().Len() {
			f[fmt.Sprintf("reserved name %q in %s", m.ReservedNames().Get(j), m.FullName())] = "reserved"
		}
		for j := range m.Extensions().Len() {
			f.extension(m.Extensions().Get(j))
		}
		f.messages(m.Messages())
		f.enums(m.Enums())
	}
}

func (f facts) enums(enums protoreflect.EnumDescriptors) {
	for i := range enums.Len() {
		e := enums.Get(i)
		f[fmt.Sprintf("enum %s", e.FullName())] = fmt.Sprintf("closed %t, %s", e.IsClosed(), options(e))
		for j := range e.Values().Len() {
			v := e.Values().Get(j)
			f[fmt.Sprintf("value %s.%s", e.FullName(), v.Name())] = fmt.Sprintf("number %d, %s", v.Number(), options(v))
		}
		for j := range e.ReservedRanges().Len() {
			r := e.ReservedRanges().Get(j)
			for number := r[0]; number <= r[1]; number++ {
				f[reservedKey(e.FullName(), int32(number))] = "reserved"
			}
		}
		for j := range e.ReservedNames().Len() {
			f[fmt.Sprintf("reserved name %q in %s", e.ReservedNames().Get(j), e.FullName())] = "reserved"
		}
	}
}

func (f facts) field(d protoreflect.FieldDescriptor) {
	f[fmt.Sprintf("field %s", d.FullName())] = shape(d)
}

func (f facts) extension(d protoreflect.ExtensionDescriptor) {
	f[fmt.Sprintf("option %s", d.FullName())] = fmt.Sprintf("of %s, %s", d.ContainingMessage().FullName(), shape(d))
}

// shape is everything about a field but its name.
func shape(d protoreflect.FieldDescriptor) string {
	typeName := protoreflect.FullName("-")
	switch {
	case d.Message() != nil:
		typeName = d.Message().FullName()
	case d.Enum() != nil:
		typeName = d.Enum().FullName()
	}
	oneof := protoreflect.Name("-")
	if d.ContainingOneof() != nil {
		oneof = d.ContainingOneof().Name()
	}
	jsonName := d.JSONName()
	if d.IsExtension() {
		// An extension's JSON name is its full name in brackets; compilers differ on whether they record it.
		jsonName = "-"
	}
	return fmt.Sprintf("number %d, %s %s, type %s, json %s, oneof %s, presence %t, optional keyword %t, packed %t, %s",
		d.Number(), d.Cardinality(), d.Kind(), typeName, jsonName, oneof, d.HasPresence(), d.HasOptionalKeyword(),
		d.IsPacked(), options(d))
}

func (f facts) service(s protoreflect.ServiceDescriptor) {
	f[fmt.Sprintf("service %s", s.FullName())] = options(s)
	for i := range s.Methods().Len() {
		m := s.Methods().Get(i)
		f[fmt.Sprintf("rpc %s", m.FullName())] = fmt.Sprintf("%s (stream %t) -> %s (stream %t), %s",
			m.Input().FullName(), m.IsStreamingClient(), m.Output().FullName(), m.IsStreamingServer(), options(m))
	}
}

// options lists what is set on a thing, as number:value. It reads the wire form, as one side knows the custom options
// as Go types and the other only as numbers.
func options(d protoreflect.Descriptor) string {
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(d.Options())
	if err != nil {
		panic(fmt.Sprintf("options of %s cannot be encoded: %v", d.FullName(), err))
	}
	var set []string
	for len(raw) > 0 {
		number, wireType, n := protowire.ConsumeTag(raw)
		if n < 0 {
			panic(fmt.Sprintf("options of %s: %v", d.FullName(), protowire.ParseError(n)))
		}
		size := protowire.ConsumeFieldValue(number, wireType, raw[n:])
		if size < 0 {
			panic(fmt.Sprintf("options of %s: %v", d.FullName(), protowire.ParseError(size)))
		}
		set = append(set, fmt.Sprintf("%d:%x", number, raw[n:n+size]))
		raw = raw[n+size:]
	}
	slices.Sort(set)
	return "options [" + strings.Join(set, " ") + "]"
}

func reservedKey(in protoreflect.FullName, number int32) string {
	return fmt.Sprintf("reserved number %d in %s", number, in)
}

// differences says in what ours is not as wanted, sorted.
func differences(wanted, ours facts) []string {
	var found []string
	for name, want := range wanted {
		have, there := ours[name]
		switch {
		case !there:
			found = append(found, fmt.Sprintf("missing: %s (%s)", name, want))
		case have != want:
			found = append(found, fmt.Sprintf("different: %s\n    wanted: %s\n    ours:   %s", name, want, have))
		}
	}
	for name, have := range ours {
		if _, there := wanted[name]; !there {
			found = append(found, fmt.Sprintf("extra: %s (%s)", name, have))
		}
	}
	slices.Sort(found)
	return found
}
