package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// runtime is a container runtime without containers.
type runtime struct {
	cri.UnimplementedRuntimeServiceServer
	cri.UnimplementedImageServiceServer

	mutex      sync.Mutex
	number     int
	sandboxes  map[string]*cri.PodSandboxStatus
	containers map[string]*container
	images     map[string]bool
}

type container struct {
	status  *cri.ContainerStatus
	sandbox string
}

func serve(socket string) error {
	if err := os.RemoveAll(socket); err != nil {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	own := &runtime{
		sandboxes:  map[string]*cri.PodSandboxStatus{},
		containers: map[string]*container{},
		images:     map[string]bool{},
	}
	cri.RegisterRuntimeServiceServer(server, own)
	cri.RegisterImageServiceServer(server, own)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-stop
		server.Stop()
	}()
	return server.Serve(listener)
}

func (r *runtime) id(kind string) string {
	r.number++
	return fmt.Sprintf("%s-%d", kind, r.number)
}

func (r *runtime) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{Version: "0.1.0", RuntimeName: "none", RuntimeVersion: "0.1.0", RuntimeApiVersion: "v1"}, nil
}

func (r *runtime) Status(context.Context, *cri.StatusRequest) (*cri.StatusResponse, error) {
	ready := func(kind string) *cri.RuntimeCondition { return &cri.RuntimeCondition{Type: kind, Status: true} }
	conditions := []*cri.RuntimeCondition{ready(cri.RuntimeReady), ready(cri.NetworkReady)}
	return &cri.StatusResponse{Status: &cri.RuntimeStatus{Conditions: conditions}}, nil
}

func (r *runtime) RuntimeConfig(context.Context, *cri.RuntimeConfigRequest) (*cri.RuntimeConfigResponse, error) {
	return &cri.RuntimeConfigResponse{Linux: &cri.LinuxRuntimeConfiguration{CgroupDriver: cri.CgroupDriver_CGROUPFS}}, nil
}

func (r *runtime) UpdateRuntimeConfig(context.Context, *cri.UpdateRuntimeConfigRequest) (*cri.UpdateRuntimeConfigResponse, error) {
	return &cri.UpdateRuntimeConfigResponse{}, nil
}

func (r *runtime) RunPodSandbox(_ context.Context, request *cri.RunPodSandboxRequest) (*cri.RunPodSandboxResponse, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	id, config := r.id("sandbox"), request.Config
	r.sandboxes[id] = &cri.PodSandboxStatus{
		Id:          id,
		Metadata:    config.Metadata,
		State:       cri.PodSandboxState_SANDBOX_READY,
		CreatedAt:   time.Now().UnixNano(),
		Network:     &cri.PodSandboxNetworkStatus{Ip: fmt.Sprintf("10.88.%d.%d", r.number/250%250, r.number%250+1)},
		Linux:       &cri.LinuxPodSandboxStatus{Namespaces: &cri.Namespace{Options: config.GetLinux().GetSecurityContext().GetNamespaceOptions()}},
		Labels:      config.Labels,
		Annotations: config.Annotations,
	}
	return &cri.RunPodSandboxResponse{PodSandboxId: id}, nil
}

func (r *runtime) StopPodSandbox(_ context.Context, request *cri.StopPodSandboxRequest) (*cri.StopPodSandboxResponse, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if sandbox, known := r.sandboxes[request.PodSandboxId]; known {
		sandbox.State = cri.PodSandboxState_SANDBOX_NOTREADY
	}
	for _, one := range r.containers {
		if one.sandbox == request.PodSandboxId {
			one.stop()
		}
	}
	return &cri.StopPodSandboxResponse{}, nil
}

func (r *runtime) RemovePodSandbox(_ context.Context, request *cri.RemovePodSandboxRequest) (*cri.RemovePodSandboxResponse, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	delete(r.sandboxes, request.PodSandboxId)
	for id, one := range r.containers {
		if one.sandbox == request.PodSandboxId {
			delete(r.containers, id)
		}
	}
	return &cri.RemovePodSandboxResponse{}, nil
}

func (r *runtime) PodSandboxStatus(_ context.Context, request *cri.PodSandboxStatusRequest) (*cri.PodSandboxStatusResponse, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	sandbox, known := r.sandboxes[request.PodSandboxId]
	if !known {
		return nil, notFound(request.PodSandboxId)
	}
	return &cri.PodSandboxStatusResponse{Status: sandbox}, nil
}

func matches(labels, wanted map[string]string) bool {
	for key, value := range wanted {
		if labels[key] != value {
			return false
		}
	}
	return true
}

func (r *runtime) ListPodSandbox(_ context.Context, request *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	filter, reply := request.GetFilter(), &cri.ListPodSandboxResponse{}
	for id, sandbox := range r.sandboxes {
		if filter.GetId() != "" && filter.Id != id || filter.GetState() != nil && filter.State.State != sandbox.State ||
			!matches(sandbox.Labels, filter.GetLabelSelector()) {
			continue
		}
		reply.Items = append(reply.Items, &cri.PodSandbox{
			Id: id, Metadata: sandbox.Metadata, State: sandbox.State, CreatedAt: sandbox.CreatedAt,
			Labels: sandbox.Labels, Annotations: sandbox.Annotations,
		})
	}
	return reply, nil
}

func (r *runtime) CreateContainer(_ context.Context, request *cri.CreateContainerRequest) (*cri.CreateContainerResponse, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	id, config := r.id("container"), request.Config
	r.containers[id] = &container{sandbox: request.PodSandboxId, status: &cri.ContainerStatus{
		Id: id, Metadata: config.Metadata, State: cri.ContainerState_CONTAINER_CREATED, CreatedAt: time.Now().UnixNano(),
		Image: config.Image, ImageRef: config.GetImage().GetImage(), Labels: config.Labels, Annotations: config.Annotations, Mounts: config.Mounts,
	}}
	return &cri.CreateContainerResponse{ContainerId: id}, nil
}

func (r *runtime) StartContainer(_ context.Context, request *cri.StartContainerRequest) (*cri.StartContainerResponse, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	one, known := r.containers[request.ContainerId]
	if !known {
		return nil, notFound(request.ContainerId)
	}
	one.status.State, one.status.StartedAt = cri.ContainerState_CONTAINER_RUNNING, time.Now().UnixNano()
	return &cri.StartContainerResponse{}, nil
}

func (c *container) stop() {
	if c.status.State == cri.ContainerState_CONTAINER_EXITED {
		return
	}
	c.status.State, c.status.FinishedAt, c.status.Reason = cri.ContainerState_CONTAINER_EXITED, time.Now().UnixNano(), "Completed"
}

func (r *runtime) StopContainer(_ context.Context, request *cri.StopContainerRequest) (*cri.StopContainerResponse, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if one, known := r.containers[request.ContainerId]; known {
		one.stop()
	}
	return &cri.StopContainerResponse{}, nil
}

func (r *runtime) RemoveContainer(_ context.Context, request *cri.RemoveContainerRequest) (*cri.RemoveContainerResponse, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	delete(r.containers, request.ContainerId)
	return &cri.RemoveContainerResponse{}, nil
}

func (r *runtime) ListContainers(_ context.Context, request *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	filter, reply := request.GetFilter(), &cri.ListContainersResponse{}
	for id, one := range r.containers {
		status := one.status
		if filter.GetId() != "" && filter.Id != id || filter.GetPodSandboxId() != "" && filter.PodSandboxId != one.sandbox ||
			filter.GetState() != nil && filter.State.State != status.State || !matches(status.Labels, filter.GetLabelSelector()) {
			continue
		}
		reply.Containers = append(reply.Containers, &cri.Container{
			Id: id, PodSandboxId: one.sandbox, Metadata: status.Metadata, Image: status.Image, ImageRef: status.ImageRef, State: status.State,
			CreatedAt: status.CreatedAt, Labels: status.Labels, Annotations: status.Annotations,
		})
	}
	return reply, nil
}

func (r *runtime) ContainerStatus(_ context.Context, request *cri.ContainerStatusRequest) (*cri.ContainerStatusResponse, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	one, known := r.containers[request.ContainerId]
	if !known {
		return nil, notFound(request.ContainerId)
	}
	return &cri.ContainerStatusResponse{Status: one.status}, nil
}

func (r *runtime) UpdateContainerResources(context.Context, *cri.UpdateContainerResourcesRequest) (*cri.UpdateContainerResourcesResponse, error) {
	return &cri.UpdateContainerResourcesResponse{}, nil
}

func (r *runtime) ListContainerStats(context.Context, *cri.ListContainerStatsRequest) (*cri.ListContainerStatsResponse, error) {
	return &cri.ListContainerStatsResponse{}, nil
}

func (r *runtime) ListPodSandboxStats(context.Context, *cri.ListPodSandboxStatsRequest) (*cri.ListPodSandboxStatsResponse, error) {
	return &cri.ListPodSandboxStatsResponse{}, nil
}

func (r *runtime) ListImages(context.Context, *cri.ListImagesRequest) (*cri.ListImagesResponse, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	reply := &cri.ListImagesResponse{}
	for name := range r.images {
		reply.Images = append(reply.Images, image(name))
	}
	return reply, nil
}

func image(name string) *cri.Image {
	return &cri.Image{Id: name, RepoTags: []string{name}, Size: 1, Spec: &cri.ImageSpec{Image: name}}
}

func (r *runtime) ImageStatus(_ context.Context, request *cri.ImageStatusRequest) (*cri.ImageStatusResponse, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if name := request.GetImage().GetImage(); r.images[name] {
		return &cri.ImageStatusResponse{Image: image(name)}, nil
	}
	return &cri.ImageStatusResponse{}, nil
}

func (r *runtime) PullImage(_ context.Context, request *cri.PullImageRequest) (*cri.PullImageResponse, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	name := request.GetImage().GetImage()
	r.images[name] = true
	return &cri.PullImageResponse{ImageRef: name}, nil
}

func (r *runtime) RemoveImage(_ context.Context, request *cri.RemoveImageRequest) (*cri.RemoveImageResponse, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	delete(r.images, request.GetImage().GetImage())
	return &cri.RemoveImageResponse{}, nil
}

func (r *runtime) ImageFsInfo(context.Context, *cri.ImageFsInfoRequest) (*cri.ImageFsInfoResponse, error) {
	usage := []*cri.FilesystemUsage{{
		Timestamp: time.Now().UnixNano(), FsId: &cri.FilesystemIdentifier{Mountpoint: "/"},
		UsedBytes: &cri.UInt64Value{Value: 1}, InodesUsed: &cri.UInt64Value{Value: 1},
	}}
	return &cri.ImageFsInfoResponse{ImageFilesystems: usage, ContainerFilesystems: usage}, nil
}
