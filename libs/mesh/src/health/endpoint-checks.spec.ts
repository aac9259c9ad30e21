import { create, type MessageInitShape } from '@bufbuild/protobuf';
import {
  EndpointHealth_Status as Status,
  EndpointHealthCheck_Type as Type,
  NetworkUpdateSchema,
  type EndpointHealthCheckSchema,
} from '@cloudless/api';
import { createSeededRandom } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { ExternalAddresses } from '../dial/external-addresses.js';
import { NetworkModel } from '../model/network-model.js';
import type { CheckClients, HealthReport } from '../ports.js';
import { anEndpoint } from '../testing/test-cluster.js';
import { silentTestLog } from '../testing/silent-test-log.js';
import { EndpointChecks } from './endpoint-checks.js';

type Check = MessageInitShape<typeof EndpointHealthCheckSchema>;
type Answer = 'accepts' | 'refuses' | 'hangs' | number | string;

const hang = (signal: AbortSignal): Promise<never> =>
  new Promise((_resolve, reject) =>
    signal.addEventListener('abort', () => reject(new Error('aborted'))),
  );

/** The checks of node `a` for endpoints of the service `web` with the addresses 10.0.0.x. */
class CheckBed {
  readonly clock = new ManualClock();
  readonly model = new NetworkModel();
  readonly reports: HealthReport[] = [];
  readonly requests: {
    readonly kind: string;
    readonly atMs: number;
    readonly [key: string]: unknown;
  }[] = [];
  answer: Answer = 'accepts';
  running = 0;
  mostRunning = 0;
  readonly checks: EndpointChecks;

  constructor() {
    const ask = async <T>(kind: string, target: object, signal: AbortSignal): Promise<T> => {
      this.requests.push({ kind, atMs: this.clock.now(), ...target });
      this.mostRunning = Math.max(this.mostRunning, (this.running += 1));
      try {
        if (this.answer === 'hangs') return await hang(signal);
        if (this.answer === 'refuses') throw new Error('connection refused');
        await Promise.resolve();
        return this.answer as T;
      } finally {
        this.running -= 1;
      }
    };
    const clients: CheckClients = {
      tcp: (target, signal) => ask('tcp', target, signal),
      http: (target, signal) => ask('http', target, signal),
      grpc: (target, signal) => ask('grpc', target, signal),
    };
    const { clock, model } = this;
    const external = new ExternalAddresses(model, () => []);
    this.checks = new EndpointChecks({
      ...{ nodeId: 'a', view: model, clock, random: createSeededRandom(7), log: silentTestLog },
      ...{ clients, explainRefused: (ip) => external.explainRefused(ip) },
      report: (report) => this.reports.push(report),
    });
  }

  service(healthCheck: Check | undefined = {}): void {
    const loadBalancer = healthCheck === undefined ? {} : { healthCheck };
    this.apply({ services: [{ namespace: 'default', name: 'web', loadBalancer }] });
  }

  endpoint(id: string, changes: { by?: string; ready?: boolean; ip?: string; on?: string } = {}) {
    const { by = 'a', ready = false, ip = '10.0.0.1', on = '' } = changes;
    const ports = [{ name: 'http', ip, port: 80 }];
    const endpoint = anEndpoint('web', id, on, 80, { ready, ports, checkedByNodeId: by });
    this.apply({ endpoints: [endpoint] });
  }

  apply(update: MessageInitShape<typeof NetworkUpdateSchema>): void {
    this.checks.apply(this.model.apply(create(NetworkUpdateSchema, update)));
  }

  statuses(): readonly string[] {
    return this.reports.map(({ health }) => Status[health?.status ?? 0] ?? '');
  }
}

let bed: CheckBed;
beforeEach(() => void (bed = new CheckBed()));

describe('checks of endpoints outside the cluster', () => {
  it('reports the first success within 1 s, with the time and the ids of the endpoint', async () => {
    bed.service();
    bed.endpoint('http-10.0.0.1-80');
    await bed.clock.advance(1_000);
    expect(bed.requests).toMatchObject([{ kind: 'tcp', ip: '10.0.0.1', port: 80 }]);
    expect(bed.reports).toMatchObject([
      {
        ...{ namespace: 'default', service: 'web', endpointId: 'http-10.0.0.1-80', nodeId: 'a' },
        health: { status: Status.HEALTHY, consecutiveSuccesses: 1, reason: '' },
      },
    ]);
  });

  it('reports a failure after three checks, a new cause, and health after two successes', async () => {
    bed.service();
    bed.answer = 'refuses';
    bed.endpoint('e');
    await bed.clock.advance(23_500);
    expect(bed.requests).toHaveLength(3);
    expect(bed.reports.map(({ health }) => health?.reason)).toEqual(['connection refused']);
    bed.answer = 'hangs';
    await bed.clock.advance(30_000);
    expect(bed.reports.at(-1)?.health).toMatchObject({ reason: 'no answer within 2000 ms' });
    bed.answer = 'accepts';
    await bed.clock.advance(30_000);
    expect(bed.statuses()).toEqual(['UNHEALTHY', 'UNHEALTHY', 'HEALTHY']);
  });

  it.each<{ name: string; check: Check; answer: Answer; reason?: string }>([
    { name: 'HTTP 200', check: { type: Type.HTTP }, answer: 200 },
    { name: 'HTTP 399', check: { type: Type.HTTP }, answer: 399 },
    {
      ...{ name: 'HTTP 503', check: { type: Type.HTTP, path: '/up' } },
      ...{ answer: 503, reason: 'HTTP 503 from /up' },
    },
    {
      ...{ name: 'HTTP 101', check: { type: Type.HTTP } },
      ...{ answer: 101, reason: 'HTTP 101 from /' },
    },
    { name: 'SERVING', check: { type: Type.GRPC }, answer: 'SERVING' },
    {
      ...{ name: 'NOT_SERVING', check: { type: Type.GRPC } },
      ...{ answer: 'NOT_SERVING', reason: 'gRPC health NOT_SERVING' },
    },
  ])('judges the answer $name and reports the reason of a failure', async (given) => {
    bed.service({ ...given.check, unhealthyThreshold: 1 });
    bed.answer = given.answer;
    bed.endpoint('e');
    await bed.clock.advance(1_000);
    const { reason = '' } = given;
    const status = reason === '' ? Status.HEALTHY : Status.UNHEALTHY;
    expect(bed.reports).toMatchObject([{ health: { status, reason } }]);
  });

  it('keeps the interval, 10 % more or less, whatever the duration of a check', async () => {
    bed.service({ interval: { seconds: 5n }, timeout: { seconds: 3n } });
    bed.answer = 'hangs';
    bed.endpoint('e');
    await bed.clock.advance(100_000);
    const times = bed.requests.map(({ atMs }) => atMs);
    const intervals = times.slice(1).map((atMs, index) => atMs - (times[index] ?? 0));
    expect(Math.min(...intervals)).toBeGreaterThanOrEqual(4_500);
    expect(Math.max(...intervals)).toBeLessThanOrEqual(5_500);
    expect(new Set(intervals).size).toBeGreaterThan(10);
  });

  it.each([
    { ip: '127.0.0.1', why: 'loopback' },
    { ip: '169.254.169.254', why: 'link-local' },
    { ip: '10.96.0.20', why: 'range of virtual addresses' },
  ])('does not connect to $ip, and reports why', async ({ ip, why }) => {
    bed.apply({ settings: { serviceCidr: '10.96.0.0/16' } });
    bed.service({ unhealthyThreshold: 1 });
    bed.endpoint('e', { ip });
    await bed.clock.advance(60_000);
    expect(bed.requests).toEqual([]);
    expect(bed.reports).toMatchObject([{ health: { status: Status.UNHEALTHY } }]);
    expect(bed.reports[0]?.health?.reason).toContain(why);
  });

  it.each([
    { name: 'of another node', change: () => bed.endpoint('e', { by: 'b' }) },
    { name: 'that is a replica', change: () => bed.endpoint('e', { on: 'a' }) },
    {
      name: 'of a service without health check',
      change: () => bed.apply({ services: [{ namespace: 'default', name: 'web' }] }),
    },
    { name: 'that is gone', change: () => bed.apply({ removedEndpoints: ['default/web/e'] }) },
    { name: 'of a proxy that stops', change: () => bed.checks.stop() },
  ])('ends the checks of an endpoint $name, and the check under way', async ({ change }) => {
    bed.service();
    bed.answer = 'hangs';
    bed.endpoint('e');
    await bed.clock.advance(1_000);
    expect(bed.running).toBe(1);
    change();
    await bed.clock.advance(0);
    expect([bed.running, bed.checks.size, bed.clock.pendingTimers]).toEqual([0, 0, 0]);
    await bed.clock.advance(600_000);
    expect([bed.requests.length, bed.reports]).toEqual([1, []]);
  });

  it('makes at most 256 checks at a time, and all of them in turn', async () => {
    bed.service({ timeout: { seconds: 1n } });
    bed.answer = 'hangs';
    for (let index = 0; index < 600; index += 1) bed.endpoint(`e${index}`);
    await bed.clock.advance(4_000);
    expect(bed.mostRunning).toBe(256);
    expect(bed.requests).toHaveLength(600);
  });

  it('repeats a report without effect after 30 s, and is silent once it has one', async () => {
    bed.service();
    bed.endpoint('e');
    await bed.clock.advance(28_000);
    expect(bed.reports).toHaveLength(1);
    await bed.clock.advance(20_000);
    expect(bed.statuses()).toEqual(['HEALTHY', 'HEALTHY']);
    bed.endpoint('e', { ready: true });
    await bed.clock.advance(600_000);
    expect(bed.reports).toHaveLength(2);
  });

  it('follows a shorter interval at once and keeps the health', async () => {
    bed.service({ interval: { seconds: 3_600n } });
    bed.endpoint('e');
    await bed.clock.advance(1_000);
    bed.service({ interval: { seconds: 1n } });
    bed.endpoint('e', { ready: true });
    await bed.clock.advance(5_600);
    expect(bed.requests.length).toBeGreaterThanOrEqual(5);
    expect(bed.reports).toHaveLength(1);
  });
});
