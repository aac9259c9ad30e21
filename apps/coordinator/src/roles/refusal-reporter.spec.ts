import { create } from '@bufbuild/protobuf';
import { createRouterTransport, type Transport } from '@connectrpc/connect';
import { IdentityService, RefusedCallSchema, type RefusedCall } from '@cloudless/api';
import { ManualClock } from '@cloudless/base/testing';
import { createRefusalReporter } from './refusal-reporter.js';

const refused = create(RefusedCallSchema, { audit: { principal: 'user/eve' } });
const leader = { epoch: 1n, address: 'https://c1', coordinatorId: 'c1' };
let clock: ManualClock;
let recorded: RefusedCall[];
let transport: Transport;

beforeEach(() => {
  clock = new ManualClock();
  recorded = [];
  transport = createRouterTransport(({ service }) =>
    service(IdentityService, {
      recordRefusedCalls: ({ calls }) => {
        recorded.push(...calls);
        return {};
      },
    }),
  );
});

describe('the report of refused calls', () => {
  it('reaches the leader, also when the leader is known only after an election', async () => {
    let isElected = false;
    const report = createRefusalReporter({
      clock,
      getLeader: () => (isElected ? leader : undefined),
      connections: { connect: () => Promise.resolve(transport) },
    });
    const reported = report(refused);
    await clock.advance(2_500);
    expect(recorded).toEqual([]);
    isElected = true;
    await clock.advance(1_000);
    await reported;
    expect(recorded).toMatchObject([{ audit: { principal: 'user/eve' } }]);
    expect(clock.pendingTimers).toBe(0);
  });

  it('fails when no leader is reached, and holds a bounded number of refusals', async () => {
    const report = createRefusalReporter({
      clock,
      getLeader: () => leader,
      connections: { connect: () => Promise.reject(new Error('connection refused')) },
    });
    const reports = Array.from({ length: 101 }, () => report(refused));
    const results = Promise.allSettled(reports);
    await clock.advance(20_000);
    const reasons = (await results).map((result) =>
      result.status === 'rejected' ? (result.reason as Error).message : '',
    );
    expect([reasons[0], reasons[100]]).toEqual([
      'connection refused',
      'too many refused calls wait for their audit record',
    ]);
  });
});
