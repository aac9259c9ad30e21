import { create } from '@bufbuild/protobuf';
import { createRouterTransport } from '@connectrpc/connect';
import {
  CoordinatorService,
  RolloutStatus_Phase as Phase,
  WorkloadSchema,
  createCoordinatorClient,
  type CoordinatorClient,
  type Workload,
} from '@cloudless/api';
import {
  ControlRecordSchema,
  ReplicaRecordSchema,
  RolloutRecordSchema,
} from '@cloudless/api/store';
import { ApiTestBed } from '../testing/api-test-bed.js';

interface Change {
  /** The state of the rollout of `web` before the call. Default: completed. */
  readonly rollout?: { readonly phase: Phase; readonly waitsForPromotion?: boolean };
  readonly call: (client: CoordinatorClient) => Promise<Workload>;
}

const CHANGES: Readonly<Record<string, Change>> = {
  createWorkload: {
    call: (client) => client.createWorkload({ name: 'api', spec: { command: ['serve'] } }),
  },
  updateWorkload: {
    call: (client) => client.updateWorkload({ name: 'web', spec: { command: ['three'] } }),
  },
  scaleWorkload: { call: (client) => client.scaleWorkload({ name: 'web', replicas: 5 }) },
  deleteWorkload: { call: (client) => client.deleteWorkload({ name: 'web' }) },
  pauseRollout: {
    rollout: { phase: Phase.IN_PROGRESS },
    call: (client) => client.pauseRollout({ name: 'web' }),
  },
  resumeRollout: {
    rollout: { phase: Phase.FAILED },
    call: (client) => client.resumeRollout({ name: 'web' }),
  },
  promoteRollout: {
    rollout: { phase: Phase.PAUSED, waitsForPromotion: true },
    call: (client) => client.promoteRollout({ name: 'web', version: 2 }),
  },
  undoRollout: { call: (client) => client.undoRollout({ name: 'web', toVersion: 1 }) },
  restartRollout: { call: (client) => client.restartRollout({ name: 'web' }) },
};

/**
 * Returns the response of a call in a new cluster with the workload `web` in version 2. Each such
 * cluster gives its workloads the same uids.
 * @param replicasOf - Uid of the workload with two replicas, which may not exist yet. Default: none.
 */
async function respond(
  { call, rollout = { phase: Phase.COMPLETED } }: Change,
  { useBinaryFormat, replicasOf = '' }: { useBinaryFormat: boolean; replicasOf?: string },
): Promise<Workload> {
  const bed = await ApiTestBed.open();
  try {
    const { uid } = await bed.client.createWorkload({ name: 'web', spec: { command: ['one'] } });
    await bed.client.updateWorkload({ name: 'web', spec: { command: ['two'] } });
    const { phase: rolloutPhase, waitsForPromotion = false } = rollout;
    const control = create(ControlRecordSchema, {
      ...{ uid, nextSequence: 2n, rolloutPhase },
      rollout: create(RolloutRecordSchema, { version: 2, waitsForPromotion }),
    });
    const transaction = bed.state.transaction().put('control', uid, control);
    for (const sequence of replicasOf === '' ? [] : [0n, 1n])
      transaction.createReplica(
        create(ReplicaRecordSchema, {
          ...{ id: `${replicasOf}-${sequence}`, uid: replicasOf, sequence, version: 2 },
          ...{ nodeId: 'node-1', desiredRunning: true },
        }),
      );
    await bed.state.commit(transaction);
    const transport = createRouterTransport((router) => bed.registerRoutes(router), {
      transport: { useBinaryFormat },
    });
    return await call(createCoordinatorClient(transport));
  } finally {
    await bed.close();
  }
}

describe('changes of workloads', () => {
  it.each(Object.entries(CHANGES))(
    '%s answers the same in the binary format, with encoded replicas, and in JSON',
    async (_name, change) => {
      const { uid: replicasOf } = await respond(change, { useBinaryFormat: true });
      const json = await respond(change, { useBinaryFormat: false, replicasOf });
      expect(json.status?.replicas.map(({ id }) => id)).toEqual([
        `${replicasOf}-0`,
        `${replicasOf}-1`,
      ]);
      expect(await respond(change, { useBinaryFormat: true, replicasOf })).toEqual(json);
    },
  );

  it('are all in this table', () => {
    const changes = CoordinatorService.methods.filter(
      ({ output, localName }) => output === WorkloadSchema && localName !== 'getWorkload',
    );
    expect(changes.map(({ localName }) => localName).sort()).toEqual(Object.keys(CHANGES).sort());
  });
});
