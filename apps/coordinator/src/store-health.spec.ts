import { CloudlessError } from '@cloudless/base';
import { StorageFault } from '@cloudless/state-store';
import { StoreHealth } from './store-health.js';

const FAULT = {
  dataFile: new StorageFault('dataFile', 'file gone'),
  lock: new StorageFault('lock', 'lock gone'),
  content: new StorageFault('content', 'file overwritten'),
};
const OUT_OF_SERVICE = new CloudlessError('unavailable', 'out of service');

/** Resolves with true when `ended` has resolved, with false otherwise. Does not wait for it. */
function hasEnded(health: StoreHealth): Promise<boolean> {
  return Promise.race([
    health.ended.then(() => true),
    Promise.resolve().then(() => Promise.resolve(false)),
  ]);
}

describe('StoreHealth', () => {
  it.each([
    {
      name: 'is healthy and ready when nothing was reported',
      act: () => undefined,
      health: { ok: true },
      notReady: [],
      ended: false,
    },
    {
      name: 'is degraded and ready when the disk is full',
      act: (health: StoreHealth) => health.reportDiskSpace(false),
      health: { ok: true, degraded: [expect.stringContaining('disk full')] },
      notReady: [],
      ended: false,
    },
    {
      name: 'is healthy and ready when the disk has free space again',
      act: (health: StoreHealth) => [false, true].forEach(health.reportDiskSpace),
      health: { ok: true },
      notReady: [],
      ended: false,
    },
    {
      name: 'is degraded and not ready, and does not end, when the data file is lost',
      act: (health: StoreHealth) => health.reportFault(FAULT.dataFile),
      health: { ok: true, degraded: [expect.stringMatching(/^file gone; .*admin backup/)] },
      notReady: ['file gone'],
      ended: false,
    },
    {
      name: 'is unhealthy and ends when the lock is lost',
      act: (health: StoreHealth) => health.reportFault(FAULT.lock),
      health: { ok: false, reasons: ['lock gone'] },
      notReady: ['lock gone'],
      ended: true,
    },
    {
      name: 'is unhealthy and ends when the data file is overwritten',
      act: (health: StoreHealth) => health.reportFault(FAULT.content),
      health: { ok: false, reasons: ['file overwritten'] },
      notReady: ['file overwritten'],
      ended: true,
    },
    {
      name: 'is unhealthy and ends when the store is out of service',
      act: (health: StoreHealth) => health.reportEnd(OUT_OF_SERVICE),
      health: { ok: false, reasons: ['out of service'] },
      notReady: ['out of service'],
      ended: true,
    },
  ])('$name', async ({ act, health, notReady, ended }) => {
    const store = new StoreHealth();
    act(store);
    expect({
      health: store.getHealth(),
      notReady: store.getReadinessProblems(),
      ended: await hasEnded(store),
    }).toEqual({
      health,
      notReady,
      ended,
    });
  });

  it('keeps the first reason when a second one is reported', async () => {
    const store = new StoreHealth();
    store.reportFault(FAULT.lock);
    store.reportEnd(OUT_OF_SERVICE);
    expect(await store.ended).toBe(FAULT.lock);
    expect(store.getHealth()).toEqual({ ok: false, reasons: ['lock gone'] });
  });
});
