import { beforeEach, describe, expect, it } from '@jest/globals';
import { CloudlessError, silentLog, type Log, type LogFields } from '@cloudless/base';
import type { CriClient } from '../client/cri-client.js';
import { CapabilityCache } from './capability-cache.js';

let runtimes: readonly string[];
let failure: Error | undefined;
let logged: (readonly [string, LogFields | undefined])[];
let changes: (readonly string[])[];
let closing: AbortController;
let cache: CapabilityCache;

beforeEach(() => {
  runtimes = ['runc'];
  failure = undefined;
  logged = [];
  changes = [];
  closing = new AbortController();
  const write = (message: string, fields?: LogFields): void => void logged.push([message, fields]);
  const log: Log = { ...silentLog, info: write, warn: write };
  const client = {
    closed: closing.signal,
    callQuick: async () => {
      if (failure !== undefined) throw failure;
      const classes = Object.fromEntries(runtimes.map((name) => [name, {}]));
      const config = JSON.stringify({ containerd: { runtimes: classes } });
      return { info: { config }, runtimeHandlers: [] };
    },
  } as unknown as CriClient;
  cache = new CapabilityCache(client, {}, log, (names) => changes.push(names));
});

describe('CapabilityCache.refresh', () => {
  it('logs added and removed capabilities, and nothing when they are unchanged', async () => {
    await cache.load();
    await cache.refresh();
    expect(cache.list()).toContain('runtime-class.runc');
    expect(logged).toEqual([]);
    runtimes = ['runsc'];
    await cache.refresh();
    expect(logged).toEqual([
      [
        'capabilities of the container runtime changed',
        { added: ['runtime-class.runsc'], removed: ['runtime-class.runc'] },
      ],
    ]);
  });

  it('reports the first capabilities and each change, until the client is closed', async () => {
    await cache.load();
    await cache.refresh();
    expect(changes).toEqual([cache.list()]);
    runtimes = ['runsc'];
    await cache.refresh();
    expect(changes.at(-1)).toContain('runtime-class.runsc');
    const read = cache.refresh();
    runtimes = ['runc'];
    closing.abort();
    await read;
    await cache.refresh();
    expect(changes).toHaveLength(2);
  });

  it('keeps the capabilities when the runtime does not answer, and logs only other failures', async () => {
    await cache.load();
    failure = new CloudlessError('unavailable', 'the runtime is away');
    await cache.refresh();
    expect(cache.list()).toContain('runtime-class.runc');
    expect(logged).toEqual([]);
    await expect(cache.load()).rejects.toBe(failure);
    failure = new Error('a bug');
    await cache.refresh();
    expect(logged).toMatchObject([['capabilities not read', {}]]);
  });
});
