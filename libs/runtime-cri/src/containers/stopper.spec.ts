import { beforeEach, describe, expect, it } from '@jest/globals';
import { CloudlessError } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import type { ContainerStatus } from '@cloudless/runtime';
import type { CriClient } from '../client/cri-client.js';
import { aRequest } from '../testing/requests.js';
import type { ContainerInventory } from './inventory.js';
import { Stopper } from './stopper.js';

const { containerId } = aRequest();
const running = { containerId, phase: 'running' } as ContainerStatus;
const exited = { ...running, phase: 'exited', exitCode: 137 } as ContainerStatus;

let clock: ManualClock;
let stopper: Stopper;
/**
 * Received stop calls: virtual time, grace period in seconds, and the milliseconds that are added
 * to the timeout.
 */
let calls: (readonly [number, bigint, number])[];
let finish: (status: ContainerStatus) => void;
let failure: CloudlessError | undefined;

beforeEach(() => {
  clock = new ManualClock();
  calls = [];
  failure = undefined;
  const ended = new Promise<ContainerStatus>((resolve) => (finish = resolve));
  const known = { runtimeId: 'c1', status: running };
  const inventory = {
    find: () => known,
    waitForExit: () => ({ promise: ended, cancel: () => undefined }),
    refreshOne: async () => known,
    refreshAll: async () => undefined,
  } as unknown as ContainerInventory;
  const client = {
    callSlow: async (_name: string, call: (runtime: unknown) => unknown, extraMs: number) =>
      call({
        stopContainer: async ({ timeout }: { readonly timeout: bigint }) => {
          calls.push([clock.now(), timeout, extraMs]);
          if (failure !== undefined) throw failure;
        },
      }),
  } as unknown as CriClient;
  stopper = new Stopper(client, inventory, clock);
});

describe('Stopper.stop', () => {
  it('sends SIGTERM with a longer grace period, then SIGKILL when the requested period ends', async () => {
    const stopped = stopper.stop(containerId, 1_500);
    await clock.advance(1_499);
    expect(calls).toEqual([[0, 3n, 1_500]]);
    await clock.advance(1);
    expect(calls).toEqual([
      [0, 3n, 1_500],
      [1_500, 0n, 0],
    ]);
    finish(exited);
    expect(await stopped).toEqual(exited);
  });

  it('sends SIGKILL once, at the end of the shortest grace period of several calls', async () => {
    const stops = [1_000, 5_000, 400, 2_000].map((graceMs) => stopper.stop(containerId, graceMs));
    await clock.advance(10_000);
    expect(calls.filter(([, timeout]) => timeout === 0n)).toEqual([[400, 0n, 0]]);
    finish(exited);
    expect(await Promise.all(stops)).toEqual([exited, exited, exited, exited]);
  });

  it('sends no SIGKILL after the container has ended', async () => {
    const stopped = stopper.stop(containerId, 1_000);
    await clock.advance(10);
    finish(exited);
    await stopped;
    await clock.advance(5_000);
    expect(calls).toHaveLength(1);
    expect(clock.pendingTimers).toBe(0);
  });

  it('resolves when the runtime no longer has the container', async () => {
    failure = new CloudlessError('notFound', 'no such container');
    const gone = stopper.stop(containerId, 0);
    await clock.advance(1);
    finish(exited);
    expect(await gone).toEqual(exited);
  });

  it('rejects with the error of the runtime', async () => {
    failure = new CloudlessError('unavailable', 'the runtime is stuck');
    const stuck = expect(stopper.stop(containerId, 100)).rejects.toBe(failure);
    await clock.advance(1);
    await stuck;
    expect(calls).toHaveLength(1);
  });
});

describe('Stopper.stop when containerd answers that the connection to the shim is closed', () => {
  const shimClosed = new CloudlessError('internal', 'failed to kill container "c1": ttrpc: closed');

  it('repeats the call every 100 ms until it succeeds, and resolves with the status of the exited container', async () => {
    failure = shimClosed;
    const stopped = stopper.stop(containerId, 0);
    await clock.advance(250);
    failure = undefined;
    await clock.advance(100);
    expect(calls.map(([time]) => time)).toEqual([0, 100, 200, 300]);
    finish(exited);
    expect(await stopped).toEqual(exited);
  });

  it('rejects with this error after ten calls in one second', async () => {
    failure = shimClosed;
    const stopped = stopper.stop(containerId, 0);
    const rejected = expect(stopped).rejects.toThrow('ttrpc: closed');
    await clock.advance(5_000);
    await rejected;
    expect(calls).toHaveLength(10);
  });
});
