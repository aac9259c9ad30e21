import { beforeEach, describe, expect, it } from '@jest/globals';
import { CloudlessError, silentLog } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import type { CriClient } from '../client/cri-client.js';
import type { ContainerInventory, KnownContainer } from './inventory.js';
import { Watcher } from './watcher.js';

/** A process id that no process of this machine can have. */
const GONE = 2 ** 30;

let clock: ManualClock;
let isWatched: boolean;
let known: readonly KnownContainer[];
/** Virtual times at which all containers were listed. */
let lists: number[];
/** Virtual times at which one container was read. */
let reads: number[];
/** Errors that were passed to the waiting callers. */
let failures: unknown[];
/** Behaviour of the next lists. */
let listing: () => Promise<void>;
let watcher: Watcher;

const container = (pid: number): KnownContainer => ({ status: { pid } }) as KnownContainer;

beforeEach(() => {
  clock = new ManualClock();
  isWatched = true;
  known = [];
  lists = [];
  reads = [];
  failures = [];
  listing = async () => undefined;
  const inventory = {
    get isWatched() {
      return isWatched;
    },
    list: () => known,
    refreshAll: async () => {
      lists.push(clock.now());
      await listing();
    },
    refreshOne: async (each: KnownContainer) => {
      reads.push(clock.now());
      return each;
    },
    fail: (reason: unknown) => failures.push(reason),
  } as unknown as ContainerInventory;
  const client = {
    closed: new AbortController().signal,
    events: async function* () {
      throw new CloudlessError('unimplemented', 'no events');
    },
  } as unknown as CriClient;
  watcher = new Watcher(client, inventory, clock, silentLog);
});

describe('Watcher', () => {
  it('lists the containers every second while a caller waits', async () => {
    watcher.wake();
    await clock.advance(3_200);
    expect(lists).toEqual([1_000, 2_000, 3_000]);
    expect(reads).toEqual([]);
  });

  it('stops its timer when no caller waits any more', async () => {
    watcher.wake();
    await clock.advance(500);
    isWatched = false;
    await clock.advance(10_000);
    expect(lists).toEqual([]);
    expect(clock.pendingTimers).toBe(0);
  });

  it('reads a container whose main process has ended at each poll, for 60 polls at most', async () => {
    known = [container(GONE), container(process.pid)];
    watcher.wake();
    await clock.advance(200);
    expect(reads).toEqual([50, 100, 150, 200]);
    await clock.advance(60_000);
    expect(reads.length).toBeLessThanOrEqual(60);
    expect(reads.length).toBeGreaterThan(50);
  });

  it('lists all containers instead of reading each one when 9 main processes have ended', async () => {
    known = Array.from({ length: 9 }, (_, index) => container(GONE + index));
    watcher.wake();
    await clock.advance(50);
    expect([lists, reads]).toEqual([[50], []]);
  });

  it('fails the waiting callers with kind unavailable when the containers cannot be listed', async () => {
    listing = async () => {
      throw new CloudlessError('unavailable', 'the runtime is away');
    };
    watcher.wake();
    await clock.advance(1_000);
    expect(failures).toMatchObject([{ kind: 'unavailable', message: 'the runtime is away' }]);
    listing = async () => {
      throw new Error('a bug');
    };
    await clock.advance(1_000);
    expect(failures).toMatchObject([{}, { kind: 'unavailable' }]);
  });
});
