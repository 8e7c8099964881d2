// A provider for Spokeshave whose machines are made up and live in a file (docs/providers.md).
//
//	provider --socket /run/provider.sock --state /var/lib/provider.json
package main

import (
	"context"
	"encoding/json"
	"flag"
	"log"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "spokeshave.sh/provider/v1alpha1"
)

const (
	version = "v1alpha1"
	// How long a machine takes to end.
	shutdown = 2 * time.Second
)

// machine is what is remembered of one.
type machine struct {
	Name, UID, Type, Offering string
	Created, Ending           time.Time
}

func (m *machine) id() string { return "yard:///" + m.UID }

func (m *machine) message() *pb.Instance {
	instance := &pb.Instance{
		ProviderId: m.id(), NodeclaimName: m.Name, NodeclaimUid: m.UID, Type: m.Type, OfferingId: m.Offering,
		State: pb.InstanceState_INSTANCE_STATE_RUNNING, CreatedAt: timestamppb.New(m.Created),
	}
	if !m.Ending.IsZero() {
		instance.State = pb.InstanceState_INSTANCE_STATE_TERMINATING
		instance.TerminatingSince = timestamppb.New(m.Ending)
	}
	return instance
}

type yard struct {
	pb.UnimplementedProviderServer
	mutex    sync.Mutex
	path     string
	machines map[string]*machine // by UID of the NodeClaim
	cluster  string
	term     uint64
}

// open reads what was there before a restart: machines outlive the provider.
func open(path string) (*yard, error) {
	y := &yard{path: path, machines: map[string]*machine{}}
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return y, nil
	} else if err != nil {
		return nil, err
	}
	return y, json.Unmarshal(text, &y.machines)
}

// save writes the file anew, whole or not at all.
func (y *yard) save() error {
	text, err := json.Marshal(y.machines)
	if err != nil {
		return err
	}
	if err := os.WriteFile(y.path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(y.path+".new", y.path)
}

// sweep forgets machines that have ended.
func (y *yard) sweep() {
	for uid, m := range y.machines {
		if !m.Ending.IsZero() && time.Since(m.Ending) > shutdown {
			delete(y.machines, uid)
		}
	}
}

func (y *yard) find(id string) (*machine, error) {
	y.sweep()
	for _, m := range y.machines {
		if m.id() == id {
			return m, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "there is no %s", id)
}

func (y *yard) refuseOldLeaders(term uint64) error {
	if term < y.term {
		return status.Errorf(codes.FailedPrecondition, "leader_term %d is older than %d", term, y.term)
	}
	y.term = term
	return nil
}

func in(key string, values ...string) *pb.Requirement {
	return &pb.Requirement{Key: key, Operator: pb.Operator_OPERATOR_IN, Values: values}
}

func instanceType(name, cpu, memory string, nanoDollars int64) *pb.InstanceType {
	zones, kinds := []string{"north", "south"}, []string{"on-demand", "spot"}
	row := &pb.InstanceType{
		Name: name,
		Requirements: []*pb.Requirement{
			in("node.kubernetes.io/instance-type", name), in("kubernetes.io/arch", "amd64"), in("kubernetes.io/os", "linux"),
			in("topology.kubernetes.io/zone", zones...), in("karpenter.sh/capacity-type", kinds...),
		},
		Capacity:     map[string]string{"cpu": cpu, "memory": memory, "pods": "110"},
		KubeReserved: map[string]string{"cpu": "100m", "memory": "500Mi"},
	}
	for _, zone := range zones {
		for index, kind := range kinds {
			price := nanoDollars / int64(1+2*index) // Spot costs a third.
			row.Offerings = append(row.Offerings, &pb.Offering{
				Id: kind + "/" + zone, Available: true, PriceNanoPerHour: proto.Int64(price),
				Requirements: []*pb.Requirement{in("topology.kubernetes.io/zone", zone), in("karpenter.sh/capacity-type", kind)},
			})
		}
	}
	return row
}

func (y *yard) Handshake(_ context.Context, r *pb.HandshakeRequest) (*pb.HandshakeResponse, error) {
	y.mutex.Lock()
	defer y.mutex.Unlock()
	if y.cluster != "" && y.cluster != r.ClusterUid {
		return nil, status.Errorf(codes.FailedPrecondition, "this provider serves the cluster %s", y.cluster)
	}
	for _, offered := range r.SupportedVersions {
		if offered == version {
			y.cluster = r.ClusterUid
			y.term = max(y.term, r.LeaderTerm)
			return &pb.HandshakeResponse{
				ChosenVersion: version, ProviderName: "yard", ProviderVersion: "1", LeaderTerm: y.term,
				NodeClasses: []*pb.NodeClassKind{{Group: "yard.example", Version: "v1", Kind: "YardNodeClass", Plural: "yardnodeclasses"}},
			}, nil
		}
	}
	return nil, status.Errorf(codes.FailedPrecondition, "this provider speaks %s", version)
}

func (y *yard) WatchCatalog(_ *pb.CatalogRequest, stream grpc.ServerStreamingServer[pb.CatalogChunk]) error {
	types := []*pb.InstanceType{
		instanceType("yard-2", "2", "8Gi", 90_000_000), instanceType("yard-4", "4", "16Gi", 180_000_000),
		instanceType("yard-16", "16", "64Gi", 720_000_000),
	}
	if err := stream.Send(&pb.CatalogChunk{Generation: 1, SnapshotComplete: true, Types: types}); err != nil {
		return err
	}
	<-stream.Context().Done() // Nothing ever changes.
	return nil
}

func (y *yard) Launch(_ context.Context, r *pb.LaunchRequest) (*pb.LaunchReply, error) {
	y.mutex.Lock()
	defer y.mutex.Unlock()
	if err := y.refuseOldLeaders(r.LeaderTerm); err != nil {
		return nil, err
	}
	y.sweep()
	m, exists := y.machines[r.NodeclaimUid] // The same NodeClaim again: the same machine.
	if !exists && len(r.Candidates) == 0 {
		failure := &pb.LaunchFailure{Kind: pb.FailureKind_FAILURE_KIND_INSUFFICIENT_CAPACITY, Message: "nothing suits the NodeClaim"}
		return &pb.LaunchReply{Outcome: &pb.LaunchReply_Failure{Failure: failure}}, nil
	}
	if !exists {
		best := r.Candidates[0]
		m = &machine{Name: r.NodeclaimName, UID: r.NodeclaimUid, Type: best.Type, Offering: best.OfferingId, Created: time.Now()}
		y.machines[m.UID] = m
		if err := y.save(); err != nil {
			delete(y.machines, m.UID)
			return nil, status.Error(codes.Internal, err.Error())
		}
	}
	return &pb.LaunchReply{Outcome: &pb.LaunchReply_Instance{Instance: m.message()}}, nil
}

func (y *yard) GetInstance(_ context.Context, r *pb.InstanceRef) (*pb.Instance, error) {
	y.mutex.Lock()
	defer y.mutex.Unlock()
	m, err := y.find(r.ProviderId)
	if err != nil {
		return nil, err
	}
	return m.message(), nil
}

func (y *yard) ListInstances(_ *pb.ListRequest, stream grpc.ServerStreamingServer[pb.InstanceChunk]) error {
	y.mutex.Lock()
	y.sweep()
	chunk := &pb.InstanceChunk{Complete: true}
	for _, m := range y.machines {
		chunk.Instances = append(chunk.Instances, m.message())
	}
	y.mutex.Unlock()
	return stream.Send(chunk)
}

func (y *yard) Terminate(_ context.Context, r *pb.TerminateRequest) (*pb.TerminateReply, error) {
	y.mutex.Lock()
	defer y.mutex.Unlock()
	if err := y.refuseOldLeaders(r.LeaderTerm); err != nil {
		return nil, err
	}
	id := r.ProviderId
	if id == "" { // Nobody has stored what its launch was answered.
		id = (&machine{UID: r.NodeclaimUid}).id()
	}
	m, err := y.find(id)
	if err != nil {
		return nil, err
	}
	if m.Ending.IsZero() {
		m.Ending = time.Now()
	}
	if err := y.save(); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &pb.TerminateReply{State: pb.InstanceState_INSTANCE_STATE_TERMINATING}, nil
}

func main() {
	socket := flag.String("socket", "provider.sock", "unix socket")
	state := flag.String("state", "provider.json", "file that remembers machines")
	flag.Parse()
	yard, err := open(*state)
	if err != nil {
		log.Fatal(err)
	}
	_ = os.Remove(*socket)
	syscall.Umask(0o177) // Only this user opens the socket.
	listener, err := net.Listen("unix", *socket)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterProviderServer(server, yard)
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	go func() {
		<-stop.Done()
		server.Stop()
	}()
	log.Print("serving")
	if err := server.Serve(listener); err != nil {
		log.Fatal(err)
	}
}
