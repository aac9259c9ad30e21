import { UNAVAILABLE_AFTER_MS } from '@cloudless/agent-core';
import { CloudlessError, silentLog, type Log } from '@cloudless/base';
import { ManualClock, settle } from '@cloudless/base/testing';
import { createFakeRuntime, type FakeRuntime } from '@cloudless/runtime/testing';
import type { DetectionResult } from './container-detection.js';
import { DETECTION_INTERVAL_MS, DetectedContainers } from './detected-containers.js';

const SOCKET = '/run/a.sock';
const none: DetectionResult = {
  kind: 'none',
  reason: 'no container runtime was found at /run/a.sock',
};
const found: DetectionResult = {
  kind: 'found',
  socketPath: SOCKET,
  probe: {
    name: 'containerd',
    version: '1.6.20',
    ready: true,
    notReady: [],
    foreign: { count: 0, names: [] },
    capabilities: ['runtime.cri'],
  } as never,
};

describe('DetectedContainers', () => {
  let clock: ManualClock;
  let fake: FakeRuntime;
  let nextResult: DetectionResult;
  let searches: number;
  /** True: the container runtime does not answer. */
  let isAway: boolean;
  let calls: string[];
  let lines: string[];
  let containers: DetectedContainers<FakeRuntime>;

  const log: Log = {
    ...silentLog,
    info: (message) => void lines.push(message),
  };
  const create = (
    firstResult: ConstructorParameters<typeof DetectedContainers>[0]['firstResult'],
  ) =>
    new DetectedContainers<FakeRuntime>({
      firstResult,
      detect: async () => {
        searches += 1;
        return nextResult;
      },
      open: async (socketPath, cluster) => {
        calls.push(`open ${socketPath} ${cluster}`);
        if (isAway) throw new CloudlessError('unavailable', 'no container runtime answers');
        return fake;
      },
      onUse: (socketPath, cluster) => void calls.push(`use ${socketPath} ${cluster}`),
      clock,
      log,
    });

  beforeEach(() => {
    clock = new ManualClock();
    fake = createFakeRuntime({ clock, capabilities: ['runtime.cri', 'exec.tty'] });
    nextResult = none;
    searches = 0;
    isAway = false;
    calls = [];
    lines = [];
  });
  afterEach(() => {
    containers.close();
    expect(clock.pendingTimers).toBe(0);
  });

  it('opens a runtime that is found at the start, and does not search again', async () => {
    containers = create(found);
    expect(containers.description).toBe('containerd 1.6.20 at /run/a.sock');
    containers.setCluster('cluster-1');
    await settle();
    expect(calls).toEqual(['use /run/a.sock cluster-1', 'open /run/a.sock cluster-1']);
    await clock.advance(10 * DETECTION_INTERVAL_MS);
    expect(searches).toBe(0);
  });

  it('has no capabilities and a missing reason while no runtime is found', async () => {
    containers = create(none);
    containers.setCluster('cluster-1');
    await settle();
    expect(calls).toEqual([]);
    expect(containers.runtime.capabilities()).toEqual([]);
    expect(containers.description).toBeUndefined();
    expect(containers.missingReason).toBe('no container runtime was found at /run/a.sock');
    expect(await containers.runtime.list()).toEqual([]);
  });

  it('opens a runtime that appears later, logs the discovery once, and stops searching', async () => {
    containers = create(none);
    containers.setCluster('cluster-1');
    await clock.advance(DETECTION_INTERVAL_MS);
    expect([searches, calls, lines]).toEqual([1, [], []]);
    nextResult = found;
    await clock.advance(DETECTION_INTERVAL_MS);
    await settle();
    expect(calls).toEqual(['use /run/a.sock cluster-1', 'open /run/a.sock cluster-1']);
    expect(lines).toEqual(['container runtime found: this node runs containers now']);
    expect(containers.runtime.capabilities()).toEqual(['runtime.cri', 'exec.tty']);
    expect(containers.missingReason).toBeUndefined();
    await clock.advance(10 * DETECTION_INTERVAL_MS);
    expect(searches).toBe(2);
  });

  it('opens a runtime that appears before the enrolment only after the enrolment', async () => {
    containers = create(none);
    nextResult = found;
    await clock.advance(DETECTION_INTERVAL_MS);
    expect(calls).toEqual([]);
    containers.setCluster('cluster-1');
    await settle();
    expect(calls).toEqual(['use /run/a.sock cluster-1', 'open /run/a.sock cluster-1']);
  });

  it('updates the reason after a search, and continues after a search that failed', async () => {
    containers = create(none);
    nextResult = { kind: 'none', reason: 'containerd 1.6.20 at /run/a.sock is not ready' };
    await clock.advance(DETECTION_INTERVAL_MS);
    expect(containers.missingReason).toContain('is not ready');
    const failing = new CloudlessError('internal', 'broken');
    const { detect } = containers['options'];
    Object.assign(containers['options'], { detect: () => Promise.reject(failing) });
    await clock.advance(DETECTION_INTERVAL_MS);
    Object.assign(containers['options'], { detect });
    await clock.advance(DETECTION_INTERVAL_MS);
    expect(searches).toBe(2);
  });

  it('does not search while it waits for the runtime of an earlier start', async () => {
    containers = create({ kind: 'awaited', socketPath: SOCKET, capabilities: [] });
    containers.setCluster('cluster-1');
    await clock.advance(10 * DETECTION_INTERVAL_MS);
    expect(searches).toBe(0);
    expect(containers.description).toBe('a container runtime at /run/a.sock');
    expect(calls).toEqual(['use /run/a.sock cluster-1', 'open /run/a.sock cluster-1']);
  });

  it('keeps the capabilities of a runtime that it awaits, and reports the runtime as silent from the start', async () => {
    isAway = true;
    containers = create({ kind: 'awaited', socketPath: SOCKET, capabilities: ['runtime.cri'] });
    const { runtime } = containers;
    const summarize = (): unknown => [
      runtime.capabilities(),
      runtime.health().containersSilentMs >= UNAVAILABLE_AFTER_MS,
    ];
    expect(summarize()).toEqual([['runtime.cri'], true]);
    containers.setCluster('cluster-1');
    await settle();
    expect(summarize()).toEqual([['runtime.cri'], true]);
    isAway = false;
    await runtime.list();
    expect(summarize()).toEqual([['runtime.cri', 'exec.tty'], false]);
  });

  it('stops searching when it is closed', async () => {
    containers = create(none);
    containers.close();
    await clock.advance(10 * DETECTION_INTERVAL_MS);
    expect(searches).toBe(0);
  });
});
