import { create } from '@bufbuild/protobuf';
import type { HandlerContext } from '@connectrpc/connect';
import {
  PortForwardRequestSchema,
  ReplicaStatus_Phase as Phase,
  TunnelFrameSchema,
} from '@cloudless/api';
import { ReplicaRecordSchema, WorkloadRecordSchema } from '@cloudless/api/store';
import { CloudlessError } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import type { ClusterState } from '@cloudless/cluster-state';
import type { AuditEntry } from '../audit/audit-log.js';
import type { AuditSubject } from '../audit/audit-event.js';
import { InteractiveHandlers } from './interactive-handlers.js';
import type { TunnelOpener } from './tunnel-hub.js';

const uid = '0123456789abcdef';

/** A state with one workload whose replicas each run on a node of its own. */
function createState(replicaCount: number): ClusterState {
  const replicas = Array.from({ length: replicaCount }, (_, slot) => {
    const fields = {
      id: `r-${slot + 1}`,
      uid,
      slot,
      nodeId: `node-${slot + 1}`,
      containerId: `c${slot + 1}`,
    };
    return {
      value: create(ReplicaRecordSchema, {
        ...fields,
        ready: true,
        desiredRunning: true,
        phase: Phase.RUNNING,
      }),
    };
  });
  const workload = {
    value: create(WorkloadRecordSchema, { uid, namespace: 'default', name: 'web' }),
  };
  const view = {
    workload: () => workload,
    workloadByName: () => workload,
    replicasOf: () => replicas,
  };
  return { view: () => view } as unknown as ClusterState;
}

describe('InteractiveHandlers.portForward', () => {
  it('writes an audit record before each attempt when the node of the first replica is not connected', async () => {
    const steps: string[] = [];
    const recordStart = async ({ replicaId }: AuditSubject): Promise<void> =>
      void steps.push(`recorded ${replicaId}`);
    const entry = { recordStart } as unknown as AuditEntry;
    const tunnels: TunnelOpener = {
      async *open(nodeId) {
        steps.push(`dialled ${nodeId}`);
        if (nodeId === 'node-1')
          throw new CloudlessError('unavailable', 'node "node-1" is not connected');
        yield create(TunnelFrameSchema, { frame: { case: 'forwardOutput', value: {} } });
      },
    };
    const handlers = new InteractiveHandlers(
      { state: createState(3), clock: new ManualClock(), getConnection: () => undefined },
      tunnels,
    );
    async function* sendRequests() {
      yield create(PortForwardRequestSchema, {
        request: { case: 'start', value: { name: 'web' } },
      });
    }
    const context = { signal: new AbortController().signal } as HandlerContext;
    for await (const response of handlers.portForward(sendRequests(), entry, context))
      void response;
    expect(steps).toEqual(['recorded r-1', 'dialled node-1', 'recorded r-2', 'dialled node-2']);
  });
});
