import { beforeEach, describe, expect, it } from '@jest/globals';
import { CloudlessError, silentLog, type Log, type LogFields } from '@cloudless/base';
import type { CriClient } from '../client/cri-client.js';
import { CapabilityCache } from './capability-cache.js';

let runtimes: readonly string[];
let failure: Error | undefined;
let logged: (readonly [string, LogFields | undefined])[];
let cache: CapabilityCache;

beforeEach(() => {
  runtimes = ['runc'];
  failure = undefined;
  logged = [];
  const write = (message: string, fields?: LogFields): void => void logged.push([message, fields]);
  const log: Log = { ...silentLog, info: write, warn: write };
  const client = {
    callQuick: async () => {
      if (failure !== undefined) throw failure;
      const classes = Object.fromEntries(runtimes.map((name) => [name, {}]));
      const config = JSON.stringify({ containerd: { runtimes: classes } });
      return { info: { config }, runtimeHandlers: [] };
    },
  } as unknown as CriClient;
  cache = new CapabilityCache(client, {}, log);
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
