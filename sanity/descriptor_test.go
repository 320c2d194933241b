package sanity

import (
	"strings"
	"testing"

	"github.com/bufbuild/protocompile"
	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

// additions is all that our file has and the official one has not: the VolumeCondition that CSI had until 1.12.
var additions = facts{
	"message csi.v1.VolumeCondition": "map entry false, options [1060:01]",
	"field csi.v1.VolumeCondition.abnormal": "number 1, optional bool, type -, json abnormal, oneof -, " +
		"presence false, optional keyword false, packed false, options []",
	"field csi.v1.VolumeCondition.message": "number 2, optional string, type -, json message, oneof -, " +
		"presence false, optional keyword false, packed false, options []",

	"field csi.v1.NodeGetVolumeStatsResponse.volume_condition":               "number 2, " + conditionField + "options [1060:01]",
	"field csi.v1.ListVolumesResponse.VolumeStatus.volume_condition":         "number 2, " + conditionField + "options [1060:01]",
	"field csi.v1.ControllerGetVolumeResponse.VolumeStatus.volume_condition": "number 2, " + conditionField + "options []",

	"value csi.v1.ControllerServiceCapability.RPC.Type.VOLUME_CONDITION": "number 11, options [1060:01]",
	"value csi.v1.NodeServiceCapability.RPC.Type.VOLUME_CONDITION":       "number 4, options [1060:01]",
}

const conditionField = "optional message, type csi.v1.VolumeCondition, json volumeCondition, oneof -, " +
	"presence true, optional keyword false, packed false, "

// takenUp is every number that the official file reserves and our additions use.
var takenUp = []string{
	reservedKey("csi.v1.NodeGetVolumeStatsResponse", 2),
	reservedKey("csi.v1.ListVolumesResponse.VolumeStatus", 2),
	reservedKey("csi.v1.ControllerGetVolumeResponse.VolumeStatus", 2),
	reservedKey("csi.v1.ControllerServiceCapability.RPC.Type", 11),
	reservedKey("csi.v1.NodeServiceCapability.RPC.Type", 4),
}

// wantedFacts is the official descriptor with our additions.
func wantedFacts(t *testing.T) facts {
	t.Helper()
	wanted := factsOf(csi.File_csi_proto)
	for _, key := range takenUp {
		if _, there := wanted[key]; !there {
			t.Fatalf("CSI has no %q any more: an addition has a number that is not ours to use", key)
		}
		delete(wanted, key)
	}
	for name, what := range additions {
		if _, there := wanted[name]; there {
			t.Fatalf("CSI has %q by now: take it off the list of additions", name)
		}
		wanted[name] = what
	}
	return wanted
}

// ourFile compiles proto/csi.proto. It stays out of Go's registry, where the official csi.v1 is.
func ourFile(t *testing.T) protoreflect.FileDescriptor {
	t.Helper()
	compiler := protocompile.Compiler{
		Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{"../proto"}}),
	}
	files, err := compiler.Compile(t.Context(), "csi.proto")
	if err != nil {
		t.Fatalf("proto/csi.proto does not compile: %v", err)
	}
	return files[0]
}

func TestOurProtoIsTheOfficialOnePlusVolumeCondition(t *testing.T) {
	wanted, ours := wantedFacts(t), factsOf(ourFile(t))
	for _, difference := range differences(wanted, ours) {
		t.Error(difference)
	}
	count := map[string]int{}
	for name := range ours {
		count[strings.Fields(name)[0]]++
	}
	t.Logf("compared %d facts: %v; added: %d", len(ours), count, len(additions))
}

// A comparison that cannot fail proves nothing: each case spoils our descriptor in one way, and names what must be
// found to be wrong.
func TestEveryKindOfDifferenceIsFound(t *testing.T) {
	wanted := wantedFacts(t)
	pristine := protodesc.ToFileDescriptorProto(ourFile(t))
	if found := differences(wanted, relinked(t, pristine)); len(found) != 0 {
		t.Fatalf("found before anything was spoilt: %q", found)
	}

	for _, c := range []struct {
		name  string
		spoil func(*descriptorpb.FileDescriptorProto)
		found string
	}{
		{"syntax", func(f *descriptorpb.FileDescriptorProto) { f.Syntax = nil }, "different: syntax"},
		{"message dropped", func(f *descriptorpb.FileDescriptorProto) {
			f.MessageType = drop(f.MessageType, "BlockMetadata")
		}, "missing: message csi.v1.BlockMetadata "},
		{"message added", func(f *descriptorpb.FileDescriptorProto) {
			f.MessageType = append(f.MessageType, &descriptorpb.DescriptorProto{Name: proto.String("Extra")})
		}, "extra: message csi.v1.Extra "},
		{"message option", func(f *descriptorpb.FileDescriptorProto) {
			message(f, "VolumeHealth").Options = nil
		}, "different: message csi.v1.VolumeHealth\n"},
		{"nested message dropped", func(f *descriptorpb.FileDescriptorProto) {
			m := message(f, "VolumeHealth")
			m.NestedType = drop(m.NestedType, "VolumeHealthEntry")
		}, "missing: message csi.v1.VolumeHealth.VolumeHealthEntry "},
		{"field dropped", func(f *descriptorpb.FileDescriptorProto) {
			m := message(f, "Volume")
			m.Field = drop(m.Field, "capacity_bytes")
		}, "missing: field csi.v1.Volume.capacity_bytes "},
		{"field added", func(f *descriptorpb.FileDescriptorProto) {
			m := message(f, "Volume")
			m.Field = append(m.Field, &descriptorpb.FieldDescriptorProto{
				Name: proto.String("colour"), Number: proto.Int32(99), JsonName: proto.String("colour"),
				Type: descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum(), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
			})
		}, "extra: field csi.v1.Volume.colour "},
		{"field renamed", func(f *descriptorpb.FileDescriptorProto) {
			field(f, "Volume", "capacity_bytes").Name = proto.String("capacity")
		}, "missing: field csi.v1.Volume.capacity_bytes "},
		{"field renumbered", func(f *descriptorpb.FileDescriptorProto) {
			field(f, "Volume", "capacity_bytes").Number = proto.Int32(9)
		}, "different: field csi.v1.Volume.capacity_bytes\n"},
		{"field retyped", func(f *descriptorpb.FileDescriptorProto) {
			field(f, "Volume", "capacity_bytes").Type = descriptorpb.FieldDescriptorProto_TYPE_UINT64.Enum()
		}, "different: field csi.v1.Volume.capacity_bytes\n"},
		{"field of another message type", func(f *descriptorpb.FileDescriptorProto) {
			field(f, "CreateVolumeResponse", "volume").TypeName = proto.String(".csi.v1.Snapshot")
		}, "different: field csi.v1.CreateVolumeResponse.volume\n"},
		{"field of another enum type", func(f *descriptorpb.FileDescriptorProto) {
			field(f, "GetMetadataDeltaResponse", "block_metadata_type").TypeName = proto.String(".csi.v1.StorageHealthErrorType")
		}, "different: field csi.v1.GetMetadataDeltaResponse.block_metadata_type\n"},
		{"field repeated", func(f *descriptorpb.FileDescriptorProto) {
			field(f, "Volume", "capacity_bytes").Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
		}, "different: field csi.v1.Volume.capacity_bytes\n"},
		{"field with another JSON name", func(f *descriptorpb.FileDescriptorProto) {
			field(f, "Volume", "capacity_bytes").JsonName = proto.String("capacity")
		}, "different: field csi.v1.Volume.capacity_bytes\n"},
		{"field taken out of its oneof", func(f *descriptorpb.FileDescriptorProto) {
			field(f, "VolumeContentSource", "volume").OneofIndex = nil
		}, "different: field csi.v1.VolumeContentSource.volume\n"},
		{"field with the optional keyword", func(f *descriptorpb.FileDescriptorProto) {
			m := message(f, "Volume")
			m.OneofDecl = append(m.OneofDecl, &descriptorpb.OneofDescriptorProto{Name: proto.String("_capacity_bytes")})
			field(f, "Volume", "capacity_bytes").OneofIndex = proto.Int32(0)
			field(f, "Volume", "capacity_bytes").Proto3Optional = proto.Bool(true)
		}, "different: field csi.v1.Volume.capacity_bytes\n"},
		{"oneof renamed", func(f *descriptorpb.FileDescriptorProto) {
			message(f, "VolumeContentSource").OneofDecl[0].Name = proto.String("kind")
		}, "missing: oneof csi.v1.VolumeContentSource.type "},
		{"secret no longer marked", func(f *descriptorpb.FileDescriptorProto) {
			field(f, "CreateVolumeRequest", "secrets").Options = nil
		}, "different: field csi.v1.CreateVolumeRequest.secrets\n"},
		{"one of two options lost", func(f *descriptorpb.FileDescriptorProto) {
			field(f, "NodeExpandVolumeRequest", "secrets").Options = field(f, "CreateVolumeRequest", "secrets").Options
		}, "different: field csi.v1.NodeExpandVolumeRequest.secrets\n"},
		{"field deprecated", func(f *descriptorpb.FileDescriptorProto) {
			field(f, "Volume", "capacity_bytes").Options = &descriptorpb.FieldOptions{Deprecated: proto.Bool(true)}
		}, "different: field csi.v1.Volume.capacity_bytes\n"},
		{"enum dropped", func(f *descriptorpb.FileDescriptorProto) {
			f.EnumType = drop(f.EnumType, "BlockMetadataType")
		}, "missing: enum csi.v1.BlockMetadataType "},
		{"enum value dropped", func(f *descriptorpb.FileDescriptorProto) {
			f.EnumType[0].Value = f.EnumType[0].Value[:2]
		}, "missing: value csi.v1."},
		{"enum value renumbered", func(f *descriptorpb.FileDescriptorProto) {
			f.EnumType[0].Value[1].Number = proto.Int32(77)
		}, "different: value csi.v1."},
		{"enum value added", func(f *descriptorpb.FileDescriptorProto) {
			f.EnumType[0].Value = append(f.EnumType[0].Value,
				&descriptorpb.EnumValueDescriptorProto{Name: proto.String("NEW"), Number: proto.Int32(78)})
		}, "extra: value csi.v1."},
		{"enum value option", func(f *descriptorpb.FileDescriptorProto) {
			value(message(f, "PluginCapability", "Service").EnumType[0], "SNAPSHOT_METADATA_SERVICE").Options = nil
		}, "different: value csi.v1.PluginCapability.Service.Type.SNAPSHOT_METADATA_SERVICE\n"},
		{"number reserved", func(f *descriptorpb.FileDescriptorProto) {
			m := message(f, "Volume")
			m.ReservedRange = append(m.ReservedRange,
				&descriptorpb.DescriptorProto_ReservedRange{Start: proto.Int32(40), End: proto.Int32(41)})
		}, "extra: reserved number 40 in csi.v1.Volume "},
		{"service dropped", func(f *descriptorpb.FileDescriptorProto) {
			f.Service = drop(f.Service, "GroupController")
		}, "missing: service csi.v1.GroupController "},
		{"service option", func(f *descriptorpb.FileDescriptorProto) {
			service(f, "SnapshotMetadata").Options = nil
		}, "different: service csi.v1.SnapshotMetadata\n"},
		{"rpc dropped", func(f *descriptorpb.FileDescriptorProto) {
			s := service(f, "Node")
			s.Method = drop(s.Method, "NodeGetInfo")
		}, "missing: rpc csi.v1.Node.NodeGetInfo "},
		{"rpc added", func(f *descriptorpb.FileDescriptorProto) {
			s := service(f, "Node")
			extra := proto.CloneOf(s.Method[0])
			extra.Name = proto.String("NodeFormatVolume")
			s.Method = append(s.Method, extra)
		}, "extra: rpc csi.v1.Node.NodeFormatVolume "},
		{"rpc with another request", func(f *descriptorpb.FileDescriptorProto) {
			rpc(f, "Node", "NodeGetInfo").InputType = proto.String(".csi.v1.ProbeRequest")
		}, "different: rpc csi.v1.Node.NodeGetInfo\n"},
		{"rpc with another response", func(f *descriptorpb.FileDescriptorProto) {
			rpc(f, "Node", "NodeGetInfo").OutputType = proto.String(".csi.v1.ProbeResponse")
		}, "different: rpc csi.v1.Node.NodeGetInfo\n"},
		{"rpc that streams requests", func(f *descriptorpb.FileDescriptorProto) {
			rpc(f, "Node", "NodeGetInfo").ClientStreaming = proto.Bool(true)
		}, "different: rpc csi.v1.Node.NodeGetInfo\n"},
		{"rpc that no longer streams", func(f *descriptorpb.FileDescriptorProto) {
			rpc(f, "SnapshotMetadata", "GetMetadataDelta").ServerStreaming = nil
		}, "different: rpc csi.v1.SnapshotMetadata.GetMetadataDelta\n"},
		{"rpc option", func(f *descriptorpb.FileDescriptorProto) {
			rpc(f, "Controller", "GetSnapshot").Options = nil
		}, "different: rpc csi.v1.Controller.GetSnapshot\n"},
		{"custom option dropped", func(f *descriptorpb.FileDescriptorProto) {
			f.Extension = drop(f.Extension, "alpha_enum")
		}, "missing: option csi.v1.alpha_enum "},
		{"custom option renumbered", func(f *descriptorpb.FileDescriptorProto) {
			f.Extension[0].Number = proto.Int32(2000)
		}, "different: option csi.v1."},
		{"custom option of another thing", func(f *descriptorpb.FileDescriptorProto) {
			f.Extension[0].Extendee = proto.String(".google.protobuf.OneofOptions")
		}, "different: option csi.v1."},
		{"addition lost", func(f *descriptorpb.FileDescriptorProto) {
			m := message(f, "NodeGetVolumeStatsResponse")
			m.Field = drop(m.Field, "volume_condition")
		}, "missing: field csi.v1.NodeGetVolumeStatsResponse.volume_condition "},
		{"addition renumbered", func(f *descriptorpb.FileDescriptorProto) {
			value(message(f, "NodeServiceCapability", "RPC").EnumType[0], "VOLUME_CONDITION").Number = proto.Int32(9)
		}, "different: value csi.v1.NodeServiceCapability.RPC.Type.VOLUME_CONDITION\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			spoilt := proto.CloneOf(pristine)
			c.spoil(spoilt)
			found := differences(wanted, relinked(t, spoilt))
			for _, difference := range found {
				if strings.HasPrefix(difference, c.found) {
					return
				}
			}
			t.Errorf("want a difference that begins %q, found %q", c.found, found)
		})
	}
}

func relinked(t *testing.T, spoilt *descriptorpb.FileDescriptorProto) facts {
	t.Helper()
	file, err := protodesc.FileOptions{AllowUnresolvable: true}.New(spoilt, protoregistry.GlobalFiles)
	if err != nil {
		t.Fatalf("the spoilt descriptor does not even link: %v", err)
	}
	return factsOf(file)
}

type named interface{ GetName() string }

func index[T named](list []T, name string) int {
	for i, item := range list {
		if item.GetName() == name {
			return i
		}
	}
	panic("nothing is called " + name)
}

func drop[T named](list []T, name string) []T {
	i := index(list, name)
	return append(list[:i:i], list[i+1:]...)
}

func message(f *descriptorpb.FileDescriptorProto, path ...string) *descriptorpb.DescriptorProto {
	m := f.MessageType[index(f.MessageType, path[0])]
	for _, name := range path[1:] {
		m = m.NestedType[index(m.NestedType, name)]
	}
	return m
}

func field(f *descriptorpb.FileDescriptorProto, in, name string) *descriptorpb.FieldDescriptorProto {
	m := message(f, in)
	return m.Field[index(m.Field, name)]
}

func value(e *descriptorpb.EnumDescriptorProto, name string) *descriptorpb.EnumValueDescriptorProto {
	return e.Value[index(e.Value, name)]
}

func service(f *descriptorpb.FileDescriptorProto, name string) *descriptorpb.ServiceDescriptorProto {
	return f.Service[index(f.Service, name)]
}

func rpc(f *descriptorpb.FileDescriptorProto, in, name string) *descriptorpb.MethodDescriptorProto {
	s := service(f, in)
	return s.Method[index(s.Method, name)]
}
