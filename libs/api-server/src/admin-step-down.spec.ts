import type { ClusterState } from '@cloudless/cluster-state';
import { ManualClock } from '@cloudless/base/testing';
import { silentLog } from '@cloudless/base';
import { AdminHandlers } from './admin-handlers.js';
import type { AuditEntry } from './audit/audit-log.js';
import type { ApiServerDeps } from './ports.js';

/** Handlers of coordinator c1, which leads with epoch 8 beside coordinator c2. */
function createHandlers() {
  const audited: object[] = [];
  let handOverCount = 0;
  const state = { epoch: 8n, view: () => ({ coordinators: () => [{ value: { id: 'c2' } }] }) };
  const handlers = new AdminHandlers({
    state: state as unknown as ClusterState,
    ...{ log: silentLog, clock: new ManualClock(), coordinatorId: 'c1' },
    whatIf: {} as ApiServerDeps['whatIf'],
    handOver: async () => {
      handOverCount += 1;
      return { coordinatorId: 'c2', address: 'https://c2', epoch: 9n };
    },
  });
  const entry = { recordStart: async (facts: object) => void audited.push(facts) };
  const stepDown = (expectedEpoch?: bigint) =>
    handlers.stepDown(
      expectedEpoch === undefined ? {} : { expectedEpoch },
      entry as unknown as AuditEntry,
    );
  return { stepDown, audited, handOverCount: () => handOverCount };
}

describe('StepDown', () => {
  it.each([{ expectedEpoch: 8n }, { expectedEpoch: undefined }])(
    'hands the leadership with epoch 8 over when epoch $expectedEpoch is expected',
    async ({ expectedEpoch }) => {
      const { stepDown, audited } = createHandlers();
      expect(await stepDown(expectedEpoch)).toMatchObject({ leaderId: 'c2', epoch: 9n });
      expect(audited).toHaveLength(1);
    },
  );

  it('leaves the next leader alone when the expected leadership has ended, and names both epochs', async () => {
    const { stepDown, audited, handOverCount } = createHandlers();
    await expect(stepDown(7n)).rejects.toMatchObject({
      kind: 'precondition',
      message: expect.stringMatching(/epoch 7 was to end, .* c1 leads with epoch 8/),
    });
    expect([audited.length, handOverCount()]).toEqual([0, 0]);
  });
});
