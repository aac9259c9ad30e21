import { create } from '@bufbuild/protobuf';
import { definedFields } from '@cloudless/base';
import {
  ContainerStatus_State as State,
  ContainerStatusSchema,
  type ContainerStatus,
} from '@cloudless/api';
import type { ReplicaRecord } from '@cloudless/api/store';
import { isLive, type ClusterView } from '@cloudless/cluster-state';

/**
 * Builds the API message of the current container of a replica, as the agent last reported it. A
 * container that has ended has no process id, no IP address and no endpoints.
 */
export function presentContainer(
  view: Pick<ClusterView, 'workload' | 'version'>,
  replica: ReplicaRecord,
): ContainerStatus {
  const workload = view.workload(replica.uid)?.value;
  const template = view.version(replica.uid, replica.version)?.template ?? workload?.spec;
  const isRunning = isLive(replica);
  const {
    pid = 0,
    ip = '',
    runtime = '',
    runtimeId = '',
    imageDigest = '',
    startedAt,
  } = replica.container ?? {};
  return create(ContainerStatusSchema, {
    containerId: replica.containerId,
    replicaId: replica.id,
    namespace: workload?.namespace ?? '',
    workload: workload?.name ?? '',
    nodeId: replica.nodeId,
    state: isRunning ? State.RUNNING : State.EXITED,
    reason: replica.reason,
    ...(isRunning || replica.lastExitCode === undefined ? {} : { exitCode: replica.lastExitCode }),
    ...definedFields({ startedAt }),
    ...(isRunning ? { pid, ip, endpoints: replica.endpoints } : {}),
    ...{ runtime, runtimeId, imageDigest, image: template?.image ?? '' },
    command: [...(template?.command ?? []), ...(template?.args ?? [])],
  });
}
