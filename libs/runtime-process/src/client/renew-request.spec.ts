import { aScript } from '../testing/container-calls.js';
import { toRenewRequest } from './renew-request.js';

describe('the renewals that have waited for a supervisor', () => {
  const first = aScript('true').containerId;
  const second = aScript('true').containerId;
  const third = aScript('true').containerId;

  it('are sent with shorter leases; those whose leases have ended are refused', () => {
    const leases = new Map([
      [first, { leaseMs: 100, graceMs: 5 }],
      [second, { leaseMs: 30, graceMs: 5 }],
      [third, undefined],
    ]);
    expect(toRenewRequest(leases, 30)).toEqual({
      leases: [
        [first, { leaseMs: 70, graceMs: 5 }],
        [third, null],
      ],
      refusals: [expect.objectContaining({ kind: 'unavailable' })],
    });
  });
});
