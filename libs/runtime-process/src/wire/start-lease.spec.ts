import { aScript } from '../testing/container-calls.js';
import { deductStartWait, requireStartLease } from './start-lease.js';

describe('the lease of a start that has waited', () => {
  const lease = { leaseMs: 100, graceMs: 50 };

  it.each([
    { name: 'is shortened', lease, waitedMs: 30, expected: { leaseMs: 70, graceMs: 50 } },
    { name: 'stays for a client of an earlier version', lease, expected: lease },
    {
      name: 'stays for a client of an earlier version also when it is 0',
      lease: { leaseMs: 0, graceMs: 50 },
      expected: { leaseMs: 0, graceMs: 50 },
    },
    { name: 'may be absent', waitedMs: 1_000, expected: undefined },
  ])('$name', ({ lease: requestedLease, waitedMs, expected }) => {
    const request = aScript('true', requestedLease === undefined ? {} : { lease: requestedLease });
    expect(deductStartWait(request, waitedMs).lease).toEqual(expected);
  });

  it.each([{ waitedMs: 100 }, { waitedMs: 60_000 }])(
    'refuses the start when it has ended; waitedMs $waitedMs',
    ({ waitedMs }) => {
      expect(() => deductStartWait(aScript('true', { lease }), waitedMs)).toThrow(
        expect.objectContaining({
          kind: 'unavailable',
          message: expect.stringContaining('no process was started'),
        }),
      );
    },
  );
});

describe('the lease of a start, directly before its process is started', () => {
  it.each([
    { name: 'allows the start while it lasts', leaseMs: 100, elapsedMs: 99 },
    { name: 'refuses the start when it has ended', leaseMs: 100, elapsedMs: 100, isRefused: true },
    { name: 'allows the start of a client of an earlier version when it is 0', leaseMs: 0 },
    { name: 'may be absent', elapsedMs: 60_000 },
  ])('$name', ({ leaseMs, elapsedMs = 1_000, isRefused = false }) => {
    const lease = leaseMs === undefined ? undefined : { leaseMs, graceMs: 50 };
    const check = expect(() => requireStartLease(lease, elapsedMs));
    if (isRefused) check.toThrow('no process was started');
    else check.not.toThrow();
  });
});
