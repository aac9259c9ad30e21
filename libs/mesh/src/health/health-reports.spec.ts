import { CloudlessError, createSeededRandom } from '@cloudless/base';
import { ManualClock, settle } from '@cloudless/base/testing';
import type { CoordinatorConnection, HealthReport } from '../ports.js';
import { silentTestLog } from '../testing/silent-test-log.js';
import { HealthReports } from './health-reports.js';

const aReport = (endpointId: string, status = 1): HealthReport => ({
  ...{ namespace: 'default', service: 'web', endpointId, nodeId: 'a' },
  health: { status },
});

let clock: ManualClock;
let reports: HealthReports;
let sent: string[];
let failure: Error | undefined;
beforeEach(() => {
  clock = new ManualClock();
  reports = new HealthReports({ clock, random: createSeededRandom(1), log: silentTestLog });
  [sent, failure] = [[], undefined];
});

const connect = (): void =>
  reports.setConnection({
    reportHealth: async ({ endpointId, health }) => {
      await Promise.resolve();
      if (failure !== undefined) throw failure;
      sent.push(`${endpointId}:${health?.status}`);
    },
  } as CoordinatorConnection);

describe('reports of health', () => {
  it('sends the newest report of each endpoint once a coordinator is connected', async () => {
    for (const status of [1, 2]) reports.put(aReport('x', status));
    reports.put(aReport('y'));
    connect();
    await settle();
    expect([sent, reports.size]).toEqual([['x:2', 'y:1'], 0]);
  });

  it('sends again what did not arrive, later and later', async () => {
    failure = new CloudlessError('unavailable', 'no leader');
    connect();
    for (let index = 0; index < 20; index += 1) reports.put(aReport(`e${index}`));
    await clock.advance(60_000);
    expect([sent, reports.size]).toEqual([[], 20]);
    failure = undefined;
    await clock.advance(30_000);
    expect([new Set(sent).size, sent.length, reports.size]).toEqual([20, 20, 0]);
  });

  it('sends what did not arrive at once over the next connection', async () => {
    failure = new CloudlessError('unavailable', 'no leader');
    connect();
    reports.put(aReport('x'));
    await settle();
    reports.setConnection(undefined);
    failure = undefined;
    connect();
    await settle();
    expect(sent).toEqual(['x:1']);
  });

  it.each(['denied', 'notFound', 'precondition', 'invalid'] as const)(
    'forgets a report that is refused with the kind %s',
    async (kind) => {
      failure = new CloudlessError(kind, 'refused');
      connect();
      reports.put(aReport('x'));
      await settle();
      expect([reports.size, clock.pendingTimers]).toEqual([0, 0]);
    },
  );

  it('sends the newest report last, whether the one before arrived or not', async () => {
    connect();
    reports.put(aReport('x', 1));
    reports.put(aReport('x', 2));
    await settle();
    expect(sent).toEqual(['x:1', 'x:2']);
    failure = new CloudlessError('unavailable', 'no leader');
    reports.put(aReport('x', 1));
    reports.put(aReport('x', 2));
    await settle();
    failure = undefined;
    await clock.advance(1_000);
    expect(sent).toEqual(['x:1', 'x:2', 'x:2']);
  });
});
