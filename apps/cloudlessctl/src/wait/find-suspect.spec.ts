import { create } from '@bufbuild/protobuf';
import { Code, ConnectError } from '@connectrpc/connect';
import {
  ListReplicasResponseSchema,
  LogEntrySchema,
  ReplicaStatusSchema,
  ReplicaStatus_Phase as Phase,
  RolloutStatusSchema,
  RolloutStatus_Phase,
} from '@cloudless/api';
import type {
  ListReplicasRequest,
  ListReplicasResponse,
  ReplicaStatus,
  StreamLogsRequest,
} from '@cloudless/api';
import { aWorkload, runCli } from '../testing/run-cli.js';
import { createWatch } from '../testing/a-rollout.js';

const aReplica = (id: string, fields: object = {}): ReplicaStatus =>
  create(ReplicaStatusSchema, {
    ...{ id, version: 1, phase: Phase.RUNNING, nodeId: 'n1' },
    ...fields,
  });

/**
 * Waits for a workload whose rollout has failed.
 * @param listed - The replicas in the status.
 * @param omitted - The other replicas, of which ListReplicas returns one a page.
 * @returns The replica whose log is shown, and the requests of ListReplicas.
 */
async function runFailing(
  listed: readonly ReplicaStatus[],
  omitted: readonly ReplicaStatus[],
  overrides: { readonly listReplicas?: () => ListReplicasResponse } = {},
) {
  const failing = aWorkload({
    status: {
      rollout: create(RolloutStatusSchema, { phase: RolloutStatus_Phase.FAILED, reason: 'no' }),
      ...{ replicas: [...listed], omittedReplicas: omitted.length },
    },
  });
  const { namespace, name, uid } = failing;
  const requests: string[] = [];
  const { stderr } = await runCli(['scale', 'web', '2', '--wait'], {
    coordinator: {
      scaleWorkload: () => aWorkload(),
      watchWorkloads: createWatch(failing),
      listReplicas: ({ phases, pageToken, ...request }: ListReplicasRequest) => {
        requests.push(`${request.namespace}/${request.name} ${phases.join()} ${pageToken}`);
        const matching = omitted.filter(({ phase }) => phases.includes(phase));
        const index = Number(pageToken);
        return create(ListReplicasResponseSchema, {
          workloads: [{ namespace, name, uid, replicas: matching.slice(index, index + 1) }],
          nextPageToken: index + 1 < matching.length ? `${index + 1}` : '',
        });
      },
      streamLogs: async function* ({ replicaId }: StreamLogsRequest) {
        yield create(LogEntrySchema, { sequence: 1n, line: `log of ${replicaId}` });
      },
      ...overrides,
    },
  });
  return { shown: /log of (\S+)/.exec(stderr)?.[1], requests };
}

describe('the log that explains a failed rollout of more than 1000 replicas', () => {
  it('comes from a failed replica of the new version that the status omits', async () => {
    const { shown, requests } = await runFailing(
      [aReplica('a-1', { restarts: 1 })],
      [
        aReplica('a-2001'),
        aReplica('a-2002', { phase: Phase.FAILED, version: 0 }),
        aReplica('a-2003', { phase: Phase.FAILED }),
        aReplica('a-2004', { phase: Phase.FAILED }),
      ],
    );
    expect(shown).toBe('a-2003');
    expect(requests).toEqual(['default/web 6 ', 'default/web 6 1']);
  });

  it.each([
    {
      name: 'of a replica with restarts when none has failed',
      omitted: [aReplica('a-2001'), aReplica('a-2002', { restarts: 2 }), aReplica('a-2003')],
      expected: 'a-2002',
    },
    {
      name: 'of a replica with failed starts when none has failed',
      omitted: [aReplica('a-2001'), aReplica('a-2002', { failedStarts: 2 }), aReplica('a-2003')],
      expected: 'a-2002',
    },
    {
      name: 'of the first replica that is not ready when none was restarted',
      omitted: [aReplica('a-2001', { ready: true }), aReplica('a-2002'), aReplica('a-2003')],
      expected: 'a-2002',
    },
    {
      name: 'missing when every replica is ready or has no node',
      omitted: [aReplica('a-2001', { ready: true }), aReplica('a-2002', { nodeId: '' })],
      expected: undefined,
    },
  ])('is $name', async ({ omitted, expected }) => {
    expect((await runFailing([], omitted)).shown).toBe(expected);
  });

  it('comes from a failed replica in the status without a search for others', async () => {
    const failed = aReplica('a-1', { phase: Phase.FAILED });
    const { shown, requests } = await runFailing([failed], [aReplica('a-2001')]);
    expect([shown, requests]).toEqual(['a-1', []]);
  });

  it('comes from a replica in the status when the coordinator does not list replicas', async () => {
    const { shown } = await runFailing([aReplica('a-1')], [aReplica('a-2001')], {
      listReplicas: () => {
        throw new ConnectError('no such call', Code.Unimplemented);
      },
    });
    expect(shown).toBe('a-1');
  });
});
