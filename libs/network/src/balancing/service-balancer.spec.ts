import { aBalancer, anEndpoint, chooseId, countChoices, endpoints } from '../testing/builders.js';
import { DEFAULT_BALANCER_CONFIG } from './balancer-types.js';
import { SessionAffinity } from './session-affinity.js';

describe('locality', () => {
  const near = { nodeId: 'here', zone: 'z1', region: 'r1' };
  const inZone = { nodeId: 'n2', zone: 'z1', region: 'r1' };
  const inRegion = { nodeId: 'n3', zone: 'z2', region: 'r1' };
  const far = { nodeId: 'n4', zone: 'z9', region: 'r9' };
  const all = [near, inZone, inRegion, far];

  it.each([
    { name: 'the same node first', ready: [0, 1, 2, 3], expected: 'e0', nearness: 'node' },
    { name: 'the same zone next', ready: [1, 2, 3], expected: 'e1', nearness: 'zone' },
    { name: 'the same region next', ready: [2, 3], expected: 'e2', nearness: 'region' },
    { name: 'any other place last', ready: [3], expected: 'e3', nearness: 'any' },
  ])('chooses $name', ({ ready, expected, nearness }) => {
    const balancer = aBalancer();
    balancer.setEndpoints(
      endpoints(4, (index) => ({ ...all[index], ready: ready.includes(index) })),
    );
    expect(balancer.choose({ clientAddress: '10.0.0.1', nowMs: 0 })).toMatchObject({
      kind: 'endpoint',
      endpointId: expected,
      nearness,
    });
  });

  it('does not take unknown places for equal places', () => {
    const balancer = aBalancer();
    balancer.setEndpoints([anEndpoint({ nodeId: '', zone: '', region: '' })]);
    expect(balancer.states(0)).toMatchObject([{ nearness: 'any' }]);
  });

  it.each([
    { readyOfTen: 10, nearShare: 100 },
    { readyOfTen: 8, nearShare: 100 },
    { readyOfTen: 5, nearShare: 70 },
    { readyOfTen: 2, nearShare: 28 },
  ])('keeps $nearShare % near when $readyOfTen of 10 near endpoints are ready', (row) => {
    const balancer = aBalancer();
    balancer.setEndpoints(
      endpoints(20, (index) =>
        index < 10 ? { ...inZone, ready: index < row.readyOfTen } : { ...far, ready: true },
      ),
    );
    const counts = [...countChoices(balancer, 1_000)];
    const nearCount = counts
      .filter(([id]) => Number(id.slice(1)) < 10)
      .reduce((sum, [, count]) => sum + count, 0);
    expect(Math.abs(nearCount / 10 - row.nearShare)).toBeLessThanOrEqual(0.3);
  });

  it('spreads over all places without locality', () => {
    const balancer = aBalancer({ localityAware: false, algorithm: 'roundRobin' });
    balancer.setEndpoints(endpoints(4, (index) => ({ ...all[index] })));
    expect([...countChoices(balancer, 400).values()]).toEqual([100, 100, 100, 100]);
  });

  it('tries a far endpoint when the near ones failed for this connection', () => {
    const balancer = aBalancer();
    balancer.setEndpoints(endpoints(4, (index) => ({ ...all[index] })));
    expect(chooseId(balancer, { exclude: new Set(['e0']) })).toBe('e1');
    expect(chooseId(balancer, { exclude: new Set(['e0', 'e1', 'e2']) })).toBe('e3');
    expect(chooseId(balancer, { exclude: new Set(['e0', 'e1', 'e2', 'e3']) })).toBe('allExcluded');
  });
});

describe('outlier ejection', () => {
  const ejecting = { consecutiveFailures: 3, baseEjectionMs: 1_000, maxEjectionPercent: 50 };
  const fail = (balancer: ReturnType<typeof aBalancer>, id: string, nowMs: number): boolean =>
    [1, 2, 3].map(() => balancer.reportFailed(id, nowMs)).includes(true);

  it('begins with the third failure in a row, and a success between starts over', () => {
    const balancer = aBalancer({ outlierEjection: ejecting });
    balancer.setEndpoints(endpoints(2));
    balancer.reportFailed('e0', 0);
    balancer.reportFailed('e0', 0);
    balancer.reportConnected('e0', 0);
    balancer.reportFailed('e0', 0);
    balancer.reportFailed('e0', 0);
    expect(balancer.states(0)[0]?.state).toEqual({ kind: 'available' });
    expect(balancer.reportFailed('e0', 0)).toBe(true);
    expect(balancer.states(0)[0]?.state).toEqual({ kind: 'ejected', untilMs: 1_000, failures: 3 });
    expect(countChoices(balancer, 50)).toEqual(new Map([['e1', 50]]));
  });

  it('doubles the time up to ten times, ends with a probation, and is forgotten after a while', () => {
    const balancer = aBalancer({ outlierEjection: ejecting });
    balancer.setEndpoints(endpoints(2));
    fail(balancer, 'e0', 0);
    const lengths = [1_000];
    let nowMs = 1_000;
    for (let round = 0; round < 5; round += 1) {
      expect(balancer.states(nowMs)[0]?.state.kind).toBe('available');
      expect(balancer.reportFailed('e0', nowMs)).toBe(true); // one failure is enough now
      const state = balancer.states(nowMs)[0]?.state;
      if (state?.kind !== 'ejected') throw new Error('e0 is not ejected');
      lengths.push(state.untilMs - nowMs);
      nowMs = state.untilMs;
    }
    expect(lengths).toEqual([1_000, 2_000, 4_000, 8_000, 10_000, 10_000]);
    balancer.states(nowMs);
    balancer.reportConnected('e0', nowMs + 10_000);
    fail(balancer, 'e0', nowMs + 10_000);
    expect(balancer.states(nowMs + 10_000)[0]?.state).toMatchObject({ untilMs: nowMs + 11_000 });
  });

  it('keeps the only endpoint, and half of two', () => {
    const balancer = aBalancer({ outlierEjection: ejecting });
    balancer.setEndpoints(endpoints(1));
    expect(fail(balancer, 'e0', 0)).toBe(false);
    balancer.setEndpoints(endpoints(2));
    expect(fail(balancer, 'e0', 0)).toBe(true);
    expect(fail(balancer, 'e1', 0)).toBe(false);
  });

  it('takes ejected endpoints back when too many of the others leave', () => {
    const balancer = aBalancer({ outlierEjection: ejecting });
    balancer.setEndpoints(endpoints(4));
    fail(balancer, 'e0', 0);
    fail(balancer, 'e1', 1);
    balancer.setEndpoints(endpoints(2));
    expect(chooseId(balancer, { nowMs: 2 })).toBe('e0'); // ejected first, returns first
    balancer.setEndpoints(endpoints(2, () => ({ ready: false })));
    expect(chooseId(balancer, { nowMs: 2 })).toBe('noReadyEndpoints');
  });

  it('says that all are ejected when the user permits that', () => {
    const balancer = aBalancer({ outlierEjection: { ...ejecting, maxEjectionPercent: 100 } });
    balancer.setEndpoints(endpoints(1));
    fail(balancer, 'e0', 0);
    expect(chooseId(balancer)).toBe('allEjected');
    expect(chooseId(balancer, { nowMs: 1_000 })).toBe('e0');
  });

  it('ends for all endpoints when the service disables it', () => {
    const balancer = aBalancer({ outlierEjection: ejecting });
    balancer.setEndpoints(endpoints(2));
    fail(balancer, 'e0', 0);

    balancer.configure({ ...DEFAULT_BALANCER_CONFIG, outlierEjection: undefined });
    expect(balancer.states(0)[0]?.state.kind).toBe('available');
  });
});

describe('session affinity', () => {
  const client = { clientAddress: '10.0.0.7' };

  it('keeps the endpoint of a client while it is ready and the client returns in time', () => {
    const balancer = aBalancer({ sessionAffinityMs: 1_000 });
    balancer.setEndpoints(endpoints(10));
    const first = chooseId(balancer, { ...client, nowMs: 0 });
    for (let nowMs = 900; nowMs < 9_000; nowMs += 900) {
      expect(chooseId(balancer, { ...client, nowMs })).toBe(first);
    }
    balancer.setEndpoints(endpoints(10, (index) => ({ ready: `e${index}` !== first })));
    const second = chooseId(balancer, { ...client, nowMs: 9_000 });
    expect(second).not.toBe(first);
    balancer.setEndpoints(endpoints(10));
    expect(chooseId(balancer, { ...client, nowMs: 9_100 })).toBe(second);
  });

  it('ends after the timeout', () => {
    const balancer = aBalancer({ sessionAffinityMs: 1_000, algorithm: 'roundRobin' });
    balancer.setEndpoints(endpoints(2));
    const first = chooseId(balancer, { ...client, nowMs: 0 });
    expect(chooseId(balancer, { ...client, nowMs: 999 })).toBe(first);
    expect(chooseId(balancer, { ...client, nowMs: 1_999 })).not.toBe(first);
  });

  it('remembers a bounded number of clients, the latest', () => {
    const affinity = new SessionAffinity(3);
    for (const name of ['a', 'b', 'c', 'a', 'd']) affinity.keep(name, `of-${name}`, 0, 1_000);
    expect(affinity.size).toBe(3);
    expect(affinity.endpointOf('b', 0)).toBeUndefined();
    expect(affinity.endpointOf('a', 0)).toBe('of-a');
  });
});

describe('connections of a service', () => {
  it('are refused at max_connections over all ports, until one is closed', () => {
    const balancer = aBalancer({ maxConnections: 2 });
    balancer.setEndpoints(endpoints(1));
    balancer.opened('e0');
    balancer.opened('e0');
    expect(chooseId(balancer)).toBe('tooManyConnections');
    balancer.removeEndpoint('e0');
    balancer.closed('e0');
    expect(chooseId(balancer)).toBe('noEndpoints');
  });

  it('count for the load of an endpoint that left and came back', () => {
    const balancer = aBalancer({ algorithm: 'leastConnections' });
    balancer.setEndpoints(endpoints(2));
    balancer.opened('e0');
    balancer.removeEndpoint('e0');
    balancer.setEndpoints(endpoints(2));
    expect(balancer.states(0)[0]).toMatchObject({ endpointId: 'e0', openConnections: 1 });
    expect(chooseId(balancer)).toBe('e1');
  });
});

describe('a new endpoint', () => {
  it('does not catch up on the choices before it', () => {
    const balancer = aBalancer({ algorithm: 'roundRobin' });
    balancer.setEndpoints(endpoints(2));
    countChoices(balancer, 1_000);
    balancer.setEndpoints(endpoints(3));
    const counts = countChoices(balancer, 30);
    expect([...counts.values()].every((count) => Math.abs(count - 10) <= 1)).toBe(true);
  });

  it('gets its raised share at once', () => {
    const balancer = aBalancer({ algorithm: 'weighted' });
    const versions = (share: number): void =>
      balancer.setEndpoints([
        anEndpoint({ id: 'old', weight: 1_000_000 - share, version: 1 }),
        anEndpoint({ id: 'new', weight: share, version: 2 }),
      ]);
    versions(1);
    countChoices(balancer, 10);
    versions(500_000);
    expect(countChoices(balancer, 10).get('new')).toBeGreaterThanOrEqual(4);
  });
});
