import { deductRenewalWait, deductWait, measureWaitMs } from './request-wait.js';

describe('the wait of a request', () => {
  it.each([
    { name: 'leaves a lease that has not waited', waitedMs: 0, leaseMs: 100, graceMs: 50 },
    { name: 'shortens the lease first', waitedMs: 30, leaseMs: 70, graceMs: 50 },
    {
      name: 'ends the lease before the grace period begins',
      waitedMs: 100,
      leaseMs: 0,
      graceMs: 50,
    },
    { name: 'shortens the grace period after the lease', waitedMs: 120, leaseMs: 0, graceMs: 30 },
    { name: 'leaves no negative grace period', waitedMs: 900, leaseMs: 0, graceMs: 0 },
  ])('$name', ({ waitedMs, leaseMs, graceMs }) => {
    expect(deductWait({ leaseMs: 100, graceMs: 50 }, waitedMs)).toEqual({ leaseMs, graceMs });
  });

  it.each([
    { name: 'is the time since the message was sent', sentAtMs: 400, waitedMs: 600 },
    { name: 'is 0 when the clock of the client is ahead', sentAtMs: 1_500, waitedMs: 0 },
    { name: 'is unknown when the client has not sent the time', sentAtMs: undefined },
  ])('$name', ({ sentAtMs, waitedMs }) => {
    expect(measureWaitMs(sentAtMs, 1_000)).toBe(waitedMs);
  });
});

describe('the lease of a renewal that has waited', () => {
  it.each([
    { name: 'is shortened', leaseMs: 100, waitedMs: 30, remainingMs: 70 },
    { name: 'may be 0 when the client asked for 0', leaseMs: 0, waitedMs: 0, remainingMs: 0 },
  ])('$name', ({ leaseMs, waitedMs, remainingMs }) => {
    const lease = { leaseMs, graceMs: 50 };
    expect(deductRenewalWait(lease, waitedMs)).toEqual({ leaseMs: remainingMs, graceMs: 50 });
  });

  it.each([{ waitedMs: 100 }, { waitedMs: 60_000 }])(
    'refuses the renewal when it has ended; waitedMs $waitedMs',
    ({ waitedMs }) => {
      expect(() => deductRenewalWait({ leaseMs: 100, graceMs: 50 }, waitedMs)).toThrow(
        expect.objectContaining({
          kind: 'unavailable',
          message: 'lease: ended before the supervisor read its renewal',
        }),
      );
    },
  );
});
